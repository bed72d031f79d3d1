#include "kernels/cuda/device/check.h"
#include "kernels/cuda/ptx/element.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/weights/element_types.h"
#include "kernels/cuda/weights/store_rows.cuh"
#include "kernels/cuda/weights/tile_words.cuh"
#include "kernels/fp8.h"

// Weights that become fp8 at load: f32, f16 or bf16 rows -> tiles (quant_tile.cuh) of e4m3 numbers with one scale a row.
//
// store_scales: a thread block takes a strip, a warp two rows; a row has the same scale in all tiles of its
// strip. store_codes: a thread block takes a tile and divides by the scales, which the tile has by then. Rows
// and columns beyond the matrix become zeros. Bytes: the raw rows twice, the second time from the L2 if the
// chunk fits.
namespace minfer::cuda {
namespace {

constexpr int kScaleWarps = kStripRows / 2;

/// The largest magnitude of 16 bytes, as the bits of an f32.
template <class Element>
__device__ uint32_t largest_of(const uint4& bytes) {
  constexpr int kCount = sizeof(uint4) / sizeof(Element);
  const auto* elements = reinterpret_cast<const Element*>(&bytes);
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    largest = max(largest, __float_as_uint(to_f32(elements[i])) & 0x7fffffffu);
  return largest;
}

/// The scale of a row. A warp calls it.
template <class Element>
__device__ uint16_t scale_of_row(const Rows& rows, int64_t row, int lane) {
  if (row >= rows.end_row) return 0;
  const auto* pieces = reinterpret_cast<const uint4*>(rows.raw + (row - rows.first_row) * rows.row_bytes);
  const int count = static_cast<int>(rows.row_bytes / sizeof(uint4));
  uint32_t largest = 0;
#pragma unroll 4
  for (int i = lane; i < count; i += kWarpSize)
    largest = max(largest, largest_of<Element>(pieces[i]));
  return fp8_scale(warp_max(largest));
}

template <class Element>
__global__ void __launch_bounds__(kScaleWarps* kWarpSize) store_scales(Rows rows) {
  __shared__ uint16_t scales[kStripRows];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t strip = rows.first_row / kStripRows + blockIdx.x;
  for (int row = warp; row < kStripRows; row += kScaleWarps) {
    const uint16_t scale = scale_of_row<Element>(rows, strip * kStripRows + row, lane);
    if (lane == 0) scales[row] = scale;
  }
  __syncthreads();
  constexpr int kWords = (Tile<DType::fp8>::kBytes - Tile<DType::fp8>::kScalesAt) / 4;
  const int tiles = static_cast<int>(tiles_of(rows.cols));
  uint8_t* first_tile = rows.matrix + strip * tiles * Tile<DType::fp8>::kBytes;
  for (int i = static_cast<int>(threadIdx.x); i < tiles * kWords; i += kScaleWarps * kWarpSize) {
    const int word = i % kWords;
    uint8_t* tile = first_tile + static_cast<int64_t>(i / kWords) * Tile<DType::fp8>::kBytes;
    reinterpret_cast<uint32_t*>(tile + Tile<DType::fp8>::kScalesAt)[word] =
        scales[word / 2] | static_cast<uint32_t>(scales[word / 2 + 8]) << 16;
  }
}

template <class Element>
__global__ void __launch_bounds__(kStoreThreads) store_codes(Rows rows) {
  const int64_t strip = rows.first_row / kStripRows + blockIdx.y;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kTileCols;
  uint8_t* tile = rows.matrix + (strip * gridDim.x + blockIdx.x) * Tile<DType::fp8>::kBytes;
  const auto* scales = reinterpret_cast<const uint16_t*>(tile + Tile<DType::fp8>::kScalesAt);
  const auto code = [&](int row, int col) -> uint32_t {
    const int64_t r = strip * kStripRows + row;
    if (r >= rows.end_row || first_col + col >= rows.cols) return 0;
    const uint16_t scale = scales[4 * (row % 8) + row / 8];
    if (!has_fp8_codes(scale)) return 0;
    const auto* elements = reinterpret_cast<const Element*>(rows.raw + (r - rows.first_row) * rows.row_bytes);
    const float value = to_f32(elements[first_col + col]);
    return from_f32<__nv_fp8_e4m3>(__fdiv_rn(value, __uint_as_float(static_cast<uint32_t>(scale) << 16))).__x;
  };
  for (int i = static_cast<int>(threadIdx.x); i < Tile<DType::fp8>::kScalesAt / 4; i += kStoreThreads)
    reinterpret_cast<uint32_t*>(tile)[i] = byte_word(code, i);
}

template <class Element>
void launch(cudaStream_t stream, const Rows& rows) {
  const dim3 grid = tile_grid(rows);
  store_scales<Element><<<grid.y, kScaleWarps * kWarpSize, 0, stream>>>(rows);
  check(cudaGetLastError(), "launch of store_scales");
  store_codes<Element><<<grid, kStoreThreads, 0, stream>>>(rows);
  check(cudaGetLastError(), "launch of store_codes");
}

}  // namespace

void store_fp8(cudaStream_t stream, DType from, const Rows& rows) {
  require_equal("store_fp8: columns modulo 32", 0, rows.cols % 32);
  for_type(PlainTypes{}, "weights made fp8", from, [&](auto type) { launch<ElementOf<type>>(stream, rows); });
}

}  // namespace minfer::cuda
