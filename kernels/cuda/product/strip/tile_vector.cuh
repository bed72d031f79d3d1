#pragma once

#include "kernels/cuda/product/operands/tile_fragments.cuh"
#include "kernels/cuda/product/strip/strip_loop.cuh"
#include "kernels/cuda/product/strip/tile_halves.cuh"
#include "kernels/cuda/product/strip/vector_operand.cuh"
#include "kernels/cuda/ptx/warp.cuh"

/// Quantised weights with one token (strip_loop.cuh has the frame).
///
/// With one token, seven of B's eight columns would idle. So a column of B holds x for some groups of a tile
/// and zeros elsewhere. After the mma's of a tile a column of C is the sum of a group, and each lane scales the
/// groups of two rows for which it holds the scales. Nothing is scaled twice.
namespace minfer::cuda {

/// Limited by the shared memory of a block.
inline constexpr int kVectorWarps = kHasSmallBlocks ? 8 : 16;
template <DType type>
inline constexpr int kVectorStages = type == DType::q6_k || Tile<type>::kHasBytes ? 2 : 3;

/// The part that is the same for all ways of multiplying a tile: a warp's chunk is a tile.
///
/// Each warp makes operands of the x of its chunk, only once if it has the same chunk again and again. Otherwise all operands are
/// brought to shared memory first, unless that costs more than making them anew, as for codes of a byte without a norm in front.
template <DType type, bool kNorm_>
struct TileVector {
  static constexpr bool kNorm = kNorm_;
  static constexpr int kChunkCols = kTileCols;
  static constexpr int kColumns = 1;
  static constexpr bool kBringsX = kNorm || type != DType::q8_0;
  static constexpr int kStages = kVectorStages<type>;
  static constexpr int kWarps = kVectorWarps;
  static constexpr int kChunkBytes = Tile<type>::kBytes;

  using Chunk = TileRegisters<type>;
  using Operand = VectorOperand<type>;

  static __device__ __forceinline__ void copy(char* slot, const ProductArgs& args, int matrix, int strip,
                                              int index, int lane) {
    copy_tile<type>(slot, matrix == 0 ? args.weight : args.up, args.cols, strip, index, lane);
  }

  static int64_t x_bytes(int64_t cols) {
    return kWarps % tiles_of(cols) != 0
               ? tiles_of(cols) * static_cast<int64_t>(sizeof(typename Operand::Shared))
               : 0;
  }
  static __device__ __forceinline__ void bring_x(const ProductArgs& args, char* x, int warp, int lane) {
    bring_operands<type, kNorm, 4>(
        reinterpret_cast<typename Operand::Shared*>(x), static_cast<int>(tiles_of(args.cols)), warp, kWarps,
        lane, [&](int) -> const ProductArgs& { return args; }, [](int chunk) { return chunk * kTileCols; });
  }
  /// `x`: null, or the result of bring_x().
  __device__ __forceinline__ void hold_x(const ProductArgs& args, const char* x, int index, int lane) {
    if (index == held_index) return;
    held_index = index;
    if (kBringsX && x != nullptr) {
      operand.take(reinterpret_cast<const typename Operand::Shared*>(x)[index], lane);
    } else {
      operand = Operand::template of_chunk<kNorm>(args, index * kTileCols, lane);
    }
  }

  __device__ __forceinline__ void store(float* partials, int lane) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float sum = group_sum(sums[row]);
      if (lane % 4 == 0) partials[lane / 4 + 8 * row] = sum;
      sums[row] = 0.0f;
    }
  }

  float sums[2] = {};
  int held_index = -1;  ///< the operand's chunk: the only one with 4,096 columns and 16 warps
  Operand operand;
};

/// Codes that fit into a byte, times x in fixed point: 16 bits for the columns of a chunk, as two bytes. Their products are exact.
///
/// Column 2 q of B has the upper bytes of x in the groups of pair q, column 2 q + 1 the lower bytes. So lane
/// 4 g + t has both sums of the groups of pair t. Types with a scale for 16 columns have two C's for a group,
/// one for each half. Four-bit codes cost 3 instructions per 8 elements of a lane, bytes none.
template <DType type, bool kNorm>
struct ByteVectorMultiplier : TileVector<type, kNorm> {
  __device__ __forceinline__ void multiply(const TileRegisters<type>& tile, const ProductArgs& args,
                                           const char* x, int index, int lane) {
    using Operand = VectorOperand<type>;
    constexpr int kCount = Operand::kCount;
    this->hold_x(args, x, index, lane);
    const Operand& operand = this->operand;
    int32_t c[kCount][4] = {};
#pragma unroll
    for (int group = 0; group < 8; ++group) {
      uint32_t a[4];
      byte_operand<type>(tile, group, a);
      const bool mine = lane / 8 == Operand::pair_of(group);
#pragma unroll
      for (int half = 0; half < kCount / 2; ++half) {
        const int s = Operand::scale_of(group, half);
        multiply_add_bytes(c[s], a, mine ? operand.word(s, 0) : 0u, mine ? operand.word(s, 1) : 0u);
      }
    }
    const TileScales<type> scales(tile);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float sum = 0.0f;
#pragma unroll
      for (int s = 0; s < kCount; ++s) {
        const int32_t product =
            256 * c[s][2 * row] + c[s][2 * row + 1] - Tile<type>::kOffset * operand.sums[s];
        sum = fmaf(scales.scale[row][s], static_cast<float>(product), sum);
        if constexpr (Tile<type>::kHasMinima)
          sum = fmaf(-scales.min[row][s], static_cast<float>(operand.sums[s]), sum);
      }
      this->sums[row] = fmaf(operand.unit, sum, this->sums[row]);
    }
  }
};

/// Codes as f16: for fp8 one instruction for two, for mxfp4 9 for 8. Column g of B has x in group g. There are
/// two C's, so that an mma does not wait for the one before.
template <DType type, bool kNorm>
struct HalfVectorMultiplier : TileVector<type, kNorm> {
  __device__ __forceinline__ void multiply(const TileRegisters<type>& tile, const ProductArgs& args,
                                           const char* x, int index, int lane) {
    this->hold_x(args, x, index, lane);
    float c[2][4] = {};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      uint32_t a[4];
      tile_halves<type>(tile, i, a);
      const bool mine = lane / 4 == i / 2;
      multiply_add<__half>(c[i % 2], a, mine ? this->operand.words[2 * (i % 2)] : 0u,
                           mine ? this->operand.words[2 * (i % 2) + 1] : 0u);
    }
    const TileScales<type> scales(tile);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < 2; ++j)
        sum = fmaf(scales.scale[row][j], c[0][2 * row + j] + c[1][2 * row + j], sum);
      this->sums[row] = fmaf(kHalfUnit<type> * this->operand.unit, sum, this->sums[row]);
    }
  }
};

template <DType type, bool kNorm>
using TileVectorMultiplier = std::conditional_t<kMultipliesHalves<type>, HalfVectorMultiplier<type, kNorm>,
                                                ByteVectorMultiplier<type, kNorm>>;

}  // namespace minfer::cuda
