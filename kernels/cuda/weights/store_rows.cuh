#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/cuda/weights/weight_layout.h"

/// Shared by the kernels that put weights into tiles.
namespace minfer::cuda {

inline constexpr int kStoreThreads = 128;

/// The rows of one matrix that a launch stores.
struct Rows {
  const uint8_t* raw;  ///< from first_row on; device memory, 16-byte aligned
  int64_t row_bytes;
  int64_t first_row;  ///< a multiple of kStripRows
  int64_t end_row;
  int64_t cols;
  uint8_t* matrix;  ///< its device layout
};

/// grid: (tiles of a row, strips).
inline dim3 tile_grid(const Rows& rows) {
  return dim3(static_cast<unsigned>(tiles_of(rows.cols)),
              static_cast<unsigned>(strips_of(rows.end_row - rows.first_row)));
}

/// Rows of plain elements of type `from`, columns a multiple of 32 -> fp8 (kernels/fp8.h), bit for bit like cpu::quantise_to_fp8().
void store_fp8(cudaStream_t stream, DType from, const Rows& rows);

}  // namespace minfer::cuda
