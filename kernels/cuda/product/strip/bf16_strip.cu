#include "kernels/cuda/product/strip/strip_kernels.h"
#include "kernels/cuda/product/strip/strip_loop.cuh"
#include "kernels/cuda/product/strip/vector_x.cuh"
#include "kernels/cuda/ptx/mma.cuh"

// bf16 weights with 1 to 8 tokens (strip_loop.cuh has the frame).
//
// Weights are the A operand, tokens are B's columns. A lane reads 16 bytes of rows g and g + 8 at a time,
// columns 8 t ... 8 t + 7 of 32, enough for two mma's, and x in the same order, so nothing is repacked. With
// fewer than eight tokens the last one is repeated.
//
// Bytes: the weights once, 2 rows cols. K is a multiple of 8.
namespace minfer::cuda {
namespace {

template <int kWarps_, int kStages_, bool kNorm_>
struct Bf16Multiplier {
  static constexpr bool kNorm = kNorm_;  ///< one token alone
  static constexpr int kWarps = kWarps_;
  static constexpr int kStages = kStages_;
  static constexpr int kChunkCols = 64;
  static constexpr int kChunkBytes = kStripRows * kChunkCols * 2;
  static constexpr int kColumns = 8;
  static constexpr bool kBringsX = true;

  /// The place of eight columns 8 i ... of a row in a chunk: the rows that a quarter of a warp reads at a time
  /// are in different banks.
  static __device__ __forceinline__ int offset(int row, int i) {
    return 128 * row + 16 * (i ^ 4 * (row % 2));
  }

  struct Chunk {
    uint4 rows[2][2];  ///< for 32 columns each, g and g + 8

    __device__ __forceinline__ Chunk(const char* slot, int lane) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          rows[step][i] =
              *reinterpret_cast<const uint4*>(slot + offset(lane / 4 + 8 * i, 4 * step + lane % 4));
        }
      }
    }
  };

  static __device__ __forceinline__ void copy(char* slot, const ProductArgs& args, int matrix, int strip,
                                              int index, int lane) {
    const auto* base = static_cast<const __nv_bfloat16*>(matrix == 0 ? args.weight : args.up);
    const int k = index * kChunkCols + 8 * (lane % 8);
#pragma unroll
    for (int i = 0; i < kStripRows / 4; ++i) {
      const int row = lane / 8 + 4 * i;
      const int64_t in_matrix = min(strip * kStripRows + row, args.rows - 1);
      copy_async_in_order(slot + offset(row, lane % 8),
                          base + (k < args.cols ? in_matrix * args.cols + k : 0), k < args.cols);
    }
  }

  static int64_t x_bytes(int64_t cols) {
    return (cols + 7) / 8 * 16;
  }
  static __device__ __forceinline__ void bring_x(const ProductArgs& args, char* x, int warp, int lane) {
#pragma unroll 4
    for (int k = 8 * (32 * warp + lane); k < args.cols; k += 8 * 32 * kWarps) {
      uint4 columns;
      if constexpr (kNorm) {
        const auto pair = [&](int i) { return bf16_bits(x_pair<true>(args, k + 2 * i)); };
        columns = make_uint4(pair(0), pair(1), pair(2), pair(3));
      } else {
        columns = *reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(args.x) + k);
      }
      *reinterpret_cast<uint4*>(x + 2 * k) = columns;
    }
  }

  __device__ __forceinline__ void multiply(const Chunk& chunk, const ProductArgs& args, const char* x,
                                           int index, int lane) {
    const int token = min(lane / 4, args.tokens - 1);
    const char* row =
        x != nullptr ? x : static_cast<const char*>(args.x) + int64_t{2} * token * args.x_stride;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const uint4& low = chunk.rows[step][0];
      const uint4& high = chunk.rows[step][1];
      const uint32_t first[4] = {low.x, high.x, low.y, high.y};
      const uint32_t second[4] = {low.z, high.z, low.w, high.w};
      const int k = index * kChunkCols + 32 * step + 8 * (lane % 4);
      const uint4 columns = k < args.cols ? *reinterpret_cast<const uint4*>(row + 2 * k) : uint4{};
      multiply_add<__nv_bfloat16>(sums, first, columns.x, columns.y);
      multiply_add<__nv_bfloat16>(sums, second, columns.z, columns.w);
    }
  }

  __device__ __forceinline__ void store(float* partials, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      partials[(2 * (lane % 4) + i % 2) * kStripRows + lane / 4 + 8 * (i / 2)] = sums[i];
      sums[i] = 0.0f;
    }
  }

  float sums[4] = {};
};

template <bool kNorm>
using Multiplier = Bf16Multiplier<16, kHasSmallBlocks ? 2 : 4, kNorm>;

template <bool kNorm>
void run(Launch& launch, const ProductArgs& args) {
  args.up != nullptr ? launch_strips<Multiplier<kNorm>, 2>(launch, args)
                     : launch_strips<Multiplier<kNorm>, 1>(launch, args);
}

static_assert(sizeof(StripShared<Multiplier<true>, 2>) == kBf16NormBytes);

}  // namespace

void bf16_strip_product(Launch& launch, const ProductArgs& args) {
  args.norm != nullptr ? run<true>(launch, args) : run<false>(launch, args);
}

}  // namespace minfer::cuda
