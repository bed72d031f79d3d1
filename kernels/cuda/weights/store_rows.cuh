#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/cuda/weights/weight_layout.h"

/// What the kernels that put weights into tiles share.
namespace minfer::cuda {

inline constexpr int kStoreThreads = 128;

/// The rows of one matrix that a launch stores.
struct Rows {
  const uint8_t* raw;  ///< of first_row, device memory, 16-byte aligned
  int64_t row_bytes;
  int64_t first_row;  ///< a multiple of kPanelRows
  int64_t end_row;
  int64_t cols;
  uint8_t* matrix;  ///< its device layout
};

/// grid: (tiles of a row, panels).
inline dim3 tile_grid(const Rows& rows) {
  return dim3(static_cast<unsigned>(tiles_of(rows.cols)),
              static_cast<unsigned>(panels_of(rows.end_row - rows.first_row)));
}

/// A word of the quants plane of q8_0 and fp8, from code(row, column) of a tile.
template <class Code>
__device__ inline uint32_t byte_word(const Code& code, int word) {
  const int lane = word / 4 % 32;
  const int row = lane / 4 + 8 * (word % 4 / 2);
  const int col = 32 * (word / 128) + 16 * (word % 2) + 2 * (lane % 4);
  return (code(row, col) & 255) | (code(row, col + 1) & 255) << 16 | (code(row, col + 8) & 255) << 8 |
         (code(row, col + 9) & 255) << 24;
}

/// Rows of plain elements of type `from`, columns a multiple of 32 -> fp8 (kernels/fp8.h), bit for bit as cpu::quantise_to_fp8().
void store_fp8(cudaStream_t stream, DType from, const Rows& rows);

}  // namespace minfer::cuda
