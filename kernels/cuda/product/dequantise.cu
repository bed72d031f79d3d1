#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/product/dequantise.h"
#include "kernels/cuda/product/operands/tile_fragments.cuh"
#include "kernels/cuda/weights/weight_elements.cuh"
#include "kernels/dtype.h"

// Rows of a weight in any device layout -> bf16 or f32 [num_rows, cols], row-major.
//
// Tiles: blocks (x: eight tiles of 256 columns, y: 16 rows), one warp a tile. Lanes decode their operands
// (tile_fragments.cuh) and exchange pairs with their neighbour, so that each lane writes four consecutive elements at a time.
// Plain types: four elements a thread.
//
// Bytes: the weight once, and two or four for each element. The product follows at once, so it reads the output
// from the L2 if it fits.
namespace minfer::cuda {
namespace {

constexpr int kWarps = 8;

__device__ __forceinline__ void store_four(__nv_bfloat16* to, const float4& v) {
  const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(v.x, v.y), __floats2bfloat162_rn(v.z, v.w)};
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(pairs);
}
__device__ __forceinline__ void store_four(float* to, const float4& v) {
  *reinterpret_cast<float4*>(to) = v;
}

/// Two pairs of an operand, scaled.
__device__ __forceinline__ float4 scaled_pairs(uint32_t first, uint32_t second, float scale, float min) {
  const float2 a = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(first));
  const float2 b = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(second));
  return {fmaf(scale, a.x, -min), fmaf(scale, a.y, -min), fmaf(scale, b.x, -min), fmaf(scale, b.y, -min)};
}

/// Turns columns 2 t, 2 t + 1 (low) and 2 t + 8, 2 t + 9 (high) of the lanes into four consecutive columns from
/// first_column() on: lanes with even t get the low pairs of two lanes, lanes with odd t the high pairs.
__device__ __forceinline__ uint2 exchanged_pairs(uint32_t low, uint32_t high, int lane) {
  const bool takes_low = lane % 2 == 0;
  const uint32_t other = __shfl_xor_sync(kWholeWarp, takes_low ? high : low, 1);
  return takes_low ? make_uint2(low, other) : make_uint2(other, high);
}
__device__ __forceinline__ int first_column(int lane) {
  return 2 * (lane % 4) + (lane % 2 == 0 ? 0 : 6);
}

template <DType type, class Out>
__global__ void __launch_bounds__(kWarps * 32)
    dequantise_tiles(const char* matrix, int cols, int first_row, int num_rows, Out* out, Stamp stamp) {
  const int lane = threadIdx.x % 32;
  const int tiles = (cols + kTileCols - 1) / kTileCols;
  const int tile = blockIdx.x * kWarps + threadIdx.x / 32;
  allow_next_kernel();
  begin_kernel(stamp);
  if (tile >= tiles) return;
  const int64_t strip = first_row / kStripRows + blockIdx.y;
  const TileRegisters<type> registers(matrix + (strip * tiles + tile) * Tile<type>::kBytes, lane);
  const TileScales<type> scales(registers);
  const int row = blockIdx.y * kStripRows + lane / 4;
  Out* to = out + static_cast<int64_t>(row) * cols + tile * kTileCols + first_column(lane);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    uint32_t codes[4];
    tile_operand<type, true>(registers, i, codes);
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const int group = 16 * i / Tile<type>::kScaleCols;
      const float scale = of_group<type>(scales.scale[upper], group);
      const uint2 four = exchanged_pairs(codes[upper], codes[2 + upper], lane);
      float min = 0.0f;
      if constexpr (Tile<type>::kHasMinima) min = of_group<type>(scales.min[upper], group);
      if (row + 8 * upper < num_rows && tile * kTileCols + 16 * i < cols) {
        store_four(to + static_cast<int64_t>(8 * upper) * cols + 16 * i,
                   scaled_pairs(four.x, four.y, scale, min));
      }
    }
  }
}

template <DType type, class Out>
__global__ void __launch_bounds__(kWarps * 32)
    dequantise_plain(const void* matrix, int64_t cols, int64_t first_row, int64_t num_rows, Out* out,
                     Stamp stamp) {
  allow_next_kernel();
  begin_kernel(stamp);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
  if (first >= num_rows * cols) return;
  store_four(out + first, weight_values<type>(matrix, cols, first_row + first / cols, first % cols));
}

template <DType type, class Out>
void run(Launch& launch, const Weight& matrix, int64_t first_row, int64_t num_rows, Out* out) {
  if constexpr (is_tiled(type)) {
    require_equal("dequantise_rows: first row modulo a strip", 0, first_row % kStripRows);
    const dim3 grid(static_cast<unsigned>((tiles_of(matrix.cols) + kWarps - 1) / kWarps),
                    static_cast<unsigned>(strips_of(num_rows)));
    launch("dequantise_rows", dequantise_tiles<type, Out>, grid, kWarps * 32, 0,
           static_cast<const char*>(matrix.data), static_cast<int>(matrix.cols), static_cast<int>(first_row),
           static_cast<int>(num_rows), out);
  } else {
    constexpr int64_t kPerBlock = kWarps * 32 * 4;
    launch("dequantise_rows", dequantise_plain<type, Out>,
           static_cast<unsigned>((num_rows * matrix.cols + kPerBlock - 1) / kPerBlock), kWarps * 32, 0,
           matrix.data, matrix.cols, first_row, num_rows, out);
  }
}

}  // namespace

void dequantise_rows(Launch& launch, const Weight& matrix, int64_t first_row, int64_t num_rows,
                     DType out_type, void* out) {
  require_equal("dequantise_rows: columns modulo 4", 0, matrix.cols % kDequantisedTogether);
  for_type(DeviceTypes{}, "dequantise_rows", matrix.dtype, [&](auto type) {
    if (out_type == DType::f32) {
      run<type>(launch, matrix, first_row, num_rows, static_cast<float*>(out));
    } else {
      run<type>(launch, matrix, first_row, num_rows, static_cast<__nv_bfloat16*>(out));
    }
  });
}

}  // namespace minfer::cuda
