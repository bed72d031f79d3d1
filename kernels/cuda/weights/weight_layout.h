#pragma once

#include <cstdint>

#include "kernels/cuda/device/device_dtype.h"
#include "kernels/tensor_view.h"

/// The layout of a weight's elements in device memory: sizes only, for the host. quant_tile.cuh has the
/// bits.
///
/// f32, f16 and bf16: row-major, as in a file.
///
/// Quantised types: tiles of 16 rows x 256 columns. A tile has as many bytes as its blocks in host memory, so a
/// product streams no more. Tiles of 16 rows (a strip) lie one after the other, strip after strip. Rows and
/// columns that do not fill a tile are padded with zeros, which products read too.
namespace minfer::cuda {

inline constexpr int kStripRows = 16;
inline constexpr int kTileCols = 256;

/// Bytes of a tile of a quantised device type; 0 for the others.
constexpr int64_t tile_bytes(DType device_type) {
  switch (device_type) {
    case DType::q2_k:
      return 16 * 84;
    case DType::q3_k:
      return 16 * 110;
    case DType::iq4_xs:
      return 16 * 136;
    case DType::q4_0:
    case DType::q4_k:
    case DType::iq4_nl:
    case DType::lut4:
      return 16 * 144;
    case DType::q4_1:
      return 16 * 160;
    case DType::q5_0:
      return 16 * 176;
    case DType::q5_1:
      return 16 * 192;
    case DType::mxfp4:
      return 16 * 136;
    case DType::q5_k:
      return 16 * 176;
    case DType::q6_k:
      return 16 * 210;
    case DType::q8_0:
      return 16 * 272;
    case DType::fp8:
      return 16 * 260;
    default:
      return 0;
  }
}

/// True if a device type is kept in tiles.
constexpr bool is_tiled(DType device_type) {
  return tile_bytes(device_type) > 0;
}

constexpr int64_t tiles_of(int64_t cols) {
  return (cols + kTileCols - 1) / kTileCols;
}
constexpr int64_t strips_of(int64_t rows) {
  return (rows + kStripRows - 1) / kStripRows;
}

/// Bytes from one matrix of a tensor to the next, e.g. between experts: a multiple of 256.
constexpr int64_t matrix_stride_bytes(DType device_type, int64_t rows, int64_t cols) {
  const int64_t bytes = is_tiled(device_type) ? strips_of(rows) * tiles_of(cols) * tile_bytes(device_type)
                                              : rows * cols * (device_type == DType::f32 ? 4 : 2);
  return (bytes + 255) / 256 * 256;
}

/// Bytes of a tensor in its device layout, a multiple of 256: `count` times matrix_stride_bytes().
inline size_t device_bytes(const HostTensor& tensor) {
  return static_cast<size_t>(tensor.count *
                             matrix_stride_bytes(device_dtype(tensor), tensor.rows, tensor.cols));
}

/// The same with room for widening: the loader may widen vectors, biases of experts and norms of heads to f32.
inline size_t reserved_bytes(const HostTensor& tensor) {
  HostTensor widened = tensor;
  if (tensor.rows == 1 || tensor.name.ends_with("_norm.weight") || tensor.name.ends_with(".bias"))
    widened.dtype = DType::f32;
  return device_bytes(widened);
}

}  // namespace minfer::cuda
