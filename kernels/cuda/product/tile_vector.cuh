#pragma once

#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/product/panel_loop.cuh"
#include "kernels/cuda/product/tile_fragments.cuh"
#include "kernels/cuda/product/vector_x.cuh"

/// Quantised weights with one token (the frame is in panel_loop.cuh).
///
/// With one token seven of B's eight columns would idle. So a column of B holds x for some groups of a tile alone and zeros elsewhere:
/// after the mma's of a tile a column of C is the sum of a group, and each lane scales the groups of two rows that it holds, with the
/// scales that it holds. Nothing is scaled twice.
namespace minfer::cuda {

/// What fits into the shared memory that a block may have.
inline constexpr int kVectorWarps = kHasSmallBlocks ? 8 : 16;
template <DType type>
inline constexpr int kVectorStages = type == DType::q6_k || Tile<type>::kHasBytes ? 2 : 3;

/// What does not depend on how a tile is multiplied.
template <DType type, int kWarps_, int kStages_>
struct TileVector {
  static constexpr int kChunkCols = kTileCols;
  static constexpr int kColumns = 1;
  static constexpr int kStages = kStages_;
  static constexpr int kWarps = kWarps_;
  static constexpr int kChunkBytes = Tile<type>::kBytes;

  using Chunk = TileRegisters<type>;

  static __device__ __forceinline__ void copy(char* slot, const PanelArgs& args, int matrix, int panel,
                                              int index, int lane) {
    copy_tile<type>(slot, matrix == 0 ? args.weight : args.up, args.cols, panel, index, lane);
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
  int held_index =
      -1;  ///< of the chunk whose x is in registers: with 4,096 columns and 16 warps there is no other
};

/// Codes that fit into a byte, times x in fixed point: 16 bits for the columns of a chunk, as two bytes, whose products are exact.
///
/// Column 2 q of B has the upper bytes of x in the groups of pair q, column 2 q + 1 the lower ones, so lane 4 g + t has both sums of the
/// groups of pair t. Types with a scale for 16 columns have two C's for a group, of its halves, and groups t and t + 4 (kSixteens).
/// Four bits cost 3 instructions per 8 elements of a lane, bytes none.
template <DType type, int kWarps, int kStages>
struct ByteVectorMultiplier : TileVector<type, kWarps, kStages> {
  static constexpr bool kSixteens = Tile<type>::kScaleCols == 16;  ///< a scale for every 16 columns, not 32
  static constexpr int kCount = TileScales<type>::kCount;          ///< scales of a row that a lane has
  static_assert(kCount == (kSixteens ? 4 : 2));

  /// The pair of lanes' groups that group `group` belongs to, and which of a lane's scales are its.
  static constexpr int pair_of(int group) { return kSixteens ? group % 4 : group / 2; }
  static constexpr int scale_of(int group, int half) { return kSixteens ? group / 4 * 2 + half : group % 2; }

  __device__ __forceinline__ void take_x(const PanelArgs& args, int index, int lane) {
    if (index == this->held_index) return;
    this->held_index = index;
    const int pair = lane / 8;
    VectorX<2> values(
        args, index * kTileCols, [&](int i) { return 32 * (kSixteens ? pair + 4 * i : 2 * pair + i); },
        [&](int j) { return byte_column<type>(j / 2, j % 2, lane % 4); });
    values.find_unit();
    unit = type == DType::mxfp4 ? 0.5f * values.unit() : values.unit();
    constexpr uint32_t kOnes[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
#pragma unroll
    for (int s = 0; s < kCount; ++s) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32_t bytes = values.bytes(kSixteens ? s / 2 : s, r, lane / 4 % 2 == 0);
        if constexpr (!kSixteens) {
          x[s][r] = bytes;
        } else if constexpr (kHasByteHalves<type>) {
          x[s][r] = r == s % 2 ? bytes : 0;
        } else {
          x[s][r] = bytes & (s % 2 == 0 ? 0x00ff00ffu : 0xff00ff00u);
        }
      }
      int32_t c[4] = {};
      multiply_add_bytes(c, kOnes, x[s][0], x[s][1]);
      x_sums[s] = 256 * c[0] + c[1];
    }
  }

  __device__ __forceinline__ void multiply(const TileRegisters<type>& tile, const PanelArgs& args, int index,
                                           int lane) {
    take_x(args, index, lane);
    int32_t c[kCount][4] = {};
#pragma unroll
    for (int group = 0; group < 8; ++group) {
      uint32_t a[4];
      byte_operand<type>(tile, group, a);
      const bool mine = lane / 8 == pair_of(group);
#pragma unroll
      for (int half = 0; half < (kSixteens ? 2 : 1); ++half) {
        const int s = scale_of(group, half);
        multiply_add_bytes(c[s], a, mine ? x[s][0] : 0u, mine ? x[s][1] : 0u);
      }
    }
    const TileScales<type> scales(tile);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float sum = 0.0f;
#pragma unroll
      for (int s = 0; s < kCount; ++s) {
        const int32_t product = 256 * c[s][2 * row] + c[s][2 * row + 1] - Tile<type>::kOffset * x_sums[s];
        sum = fmaf(scales.scale[row][s], static_cast<float>(product), sum);
        if constexpr (Tile<type>::kHasMinima)
          sum = fmaf(-scales.min[row][s], static_cast<float>(x_sums[s]), sum);
      }
      this->sums[row] = fmaf(unit, sum, this->sums[row]);
    }
  }

  uint32_t x[kCount][2];   ///< B's for the groups of the lane's pair
  int32_t x_sums[kCount];  ///< of the groups of pair t
  float unit;              ///< of x, halved for numbers that are twice what they should be
};

/// FP8 weights as bf16, with a scale for 128 columns: c has the sums of the halves of all groups.
template <int kWarps, int kStages>
struct Fp8VectorMultiplier : TileVector<DType::fp8, kWarps, kStages> {
  /// x of lane 4 g + t: its columns of both halves of group g.
  __device__ __forceinline__ void take_x(const PanelArgs& args, int index, int lane) {
    if (index == this->held_index) return;
    this->held_index = index;
    const VectorX<1> values(
        args, index * kTileCols, [&](int) { return 32 * (lane / 4); },
        [&](int j) { return 8 * j + 2 * (lane % 4); });
#pragma unroll
    for (int half = 0; half < 2; ++half)
      x[half] = {values.bf16(0, 2 * half), values.bf16(0, 2 * half + 1)};
  }

  __device__ __forceinline__ void multiply(const TileRegisters<DType::fp8>& tile, const PanelArgs& args,
                                           int index, int lane) {
    take_x(args, index, lane);
    float c[2][4] = {};  // so that an mma does not wait for the last
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      uint32_t a[4];
      tile_operand<DType::fp8, false>(tile, i, a);
      const bool mine = lane / 4 == i / 2;
      multiply_add<__nv_bfloat16>(c[i % 2], a, mine ? x[i % 2].x : 0u, mine ? x[i % 2].y : 0u);
    }
    const TileScales<DType::fp8> scales(tile);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int j = 0; j < 2; ++j)
        this->sums[row] = fmaf(scales.scale[row][j], c[0][2 * row + j] + c[1][2 * row + j], this->sums[row]);
    }
  }

  uint2 x[2];
};

template <DType type, int kWarps, int kStages>
struct VectorMultiplierOf {
  using Type = ByteVectorMultiplier<type, kWarps, kStages>;
};
template <int kWarps, int kStages>
struct VectorMultiplierOf<DType::fp8, kWarps, kStages> {
  using Type = Fp8VectorMultiplier<kWarps, kStages>;
};
template <DType type>
using TileVectorMultiplier = VectorMultiplierOf<type, kVectorWarps, kVectorStages<type>>::Type;

}  // namespace minfer::cuda
