#pragma once

#include "kernels/cuda/product/operands/tile_fragments.cuh"
#include "kernels/cuda/product/strip/vector_x.cuh"
#include "kernels/cuda/ptx/mma.cuh"

/// The one token of tile_vector.cuh as B operands: a lane's part of a chunk of 256 columns.
namespace minfer::cuda {

/// For types whose codes fit into a byte: x in fixed point, for a pair of groups. Lanes with an even lane / 4 have the
/// upper bytes, the others the lower bytes. Also the sums of x over the groups whose sums of products the lane will have.
template <DType type>
struct VectorOperand {
  static constexpr bool kSixteens = Tile<type>::kScaleCols == 16;  ///< a scale for every 16 columns, not 32
  static constexpr int kCount = TileScales<type>::kCount;          ///< a lane's scales of a row
  static constexpr int kGroups = 2;
  static_assert(kCount == (kSixteens ? 4 : 2));

  struct alignas(16) Shared {
    uint4 words[32];
    int32_t sums[4][kCount];
    float unit;
  };

  /// The pair of a group, and the index of a half's scale among a lane's scales.
  static constexpr int pair_of(int group) { return kSixteens ? group % 4 : group / 2; }
  static constexpr int scale_of(int group, int half) { return kSixteens ? group / 4 * 2 + half : group % 2; }
  /// The columns that a lane takes (VectorX).
  static __device__ __forceinline__ int first_of(int i, int lane) {
    return 32 * (kSixteens ? lane / 8 + 4 * i : lane / 8 * 2 + i);
  }
  static __device__ __forceinline__ int column_of(int j, int lane) {
    return byte_column<type>(j / 2, j % 2, lane % 4);
  }

  /// The operand of a chunk that begins at column chunk_col.
  template <bool kNorm>
  static __device__ __forceinline__ VectorOperand of_chunk(const ProductArgs& args, int chunk_col, int lane) {
    VectorX<kGroups> x;
    x.template load<VectorOperand, kNorm>(args, chunk_col, lane);
    return VectorOperand(x, lane);
  }

  VectorOperand() = default;
  __device__ __forceinline__ VectorOperand(const VectorX<kGroups>& x, int lane) {
    const FixedPoint fixed = fixed_point(x);
    unit = fixed.unit;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      words[i] = x.bytes(i / 2, i % 2, fixed, lane / 4 % 2 == 0);
    if constexpr (kHasSums) {
      constexpr uint32_t kOnes[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
#pragma unroll
      for (int s = 0; s < kCount; ++s) {
        int32_t c[4] = {};
        multiply_add_bytes(c, kOnes, word(s, 0), word(s, 1));
        sums[s] = 256 * c[0] + c[1];
      }
    }
  }

  __device__ __forceinline__ void store(Shared& to, int lane) const {
    to.words[lane] = {words[0], words[1], words[2], words[3]};
    if (lane == 0) to.unit = unit;
    if constexpr (kHasSums) {
      if (lane >= 4) return;
#pragma unroll
      for (int s = 0; s < kCount; ++s)
        to.sums[lane][s] = sums[s];
    }
  }
  __device__ __forceinline__ void take(const Shared& from, int lane) {
    const uint4 held = from.words[lane];
    words[0] = held.x, words[1] = held.y, words[2] = held.z, words[3] = held.w;
    unit = from.unit;
    if constexpr (kHasSums) {
#pragma unroll
      for (int s = 0; s < kCount; ++s)
        sums[s] = from.sums[lane % 4][s];
    }
  }

  /// Register r of B for scale s.
  __device__ __forceinline__ uint32_t word(int s, int r) const {
    if constexpr (!kSixteens) return words[2 * s + r];
    const uint32_t both = words[s / 2 * 2 + r];
    if constexpr (kHasByteHalves<type>) return r == s % 2 ? both : 0;
    return both & (s % 2 == 0 ? 0x00ff00ffu : 0xff00ff00u);
  }

  static constexpr bool kHasSums = Tile<type>::kHasMinima || Tile<type>::kOffset != 0;

  uint32_t words[4];
  int32_t sums[kCount] = {};
  float unit;
};

/// For types whose codes are f16: x too, in 16 bits, of which a chunk's largest number has the highest set; a group for each lane / 4.
template <DType type>
requires kMultipliesHalves<type>
struct VectorOperand<type> {
  static constexpr int kGroups = 1;
  struct alignas(16) Shared {
    uint4 words[32];
    float unit;
  };

  static __device__ __forceinline__ int first_of(int /*i*/, int lane) { return 32 * (lane / 4); }
  static __device__ __forceinline__ int column_of(int j, int lane) { return 8 * j + 2 * (lane % 4); }

  template <bool kNorm>
  static __device__ __forceinline__ VectorOperand of_chunk(const ProductArgs& args, int chunk_col, int lane) {
    VectorX<kGroups> x;
    x.template load<VectorOperand, kNorm>(args, chunk_col, lane);
    return VectorOperand(x, lane);
  }

  VectorOperand() = default;
  __device__ __forceinline__ VectorOperand(const VectorX<kGroups>& x, int /*lane*/) {
    const FixedPoint fixed = fixed_point(x);
    unit = fixed.unit;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      words[i] = type == DType::fp8 ? x.halves(0, i / 2, fixed, i % 2 == 1) : x.halves(0, i, fixed);
  }
  __device__ __forceinline__ void store(Shared& to, int lane) const {
    to.words[lane] = {words[0], words[1], words[2], words[3]};
    if (lane == 0) to.unit = unit;
  }
  __device__ __forceinline__ void take(const Shared& from, int lane) {
    const uint4 held = from.words[lane];
    words[0] = held.x, words[1] = held.y, words[2] = held.z, words[3] = held.w;
    unit = from.unit;
  }

  uint32_t words[4];  ///< B's registers for the first sixteen columns of the group, then for the others
  float unit;
};

/// Brings a warp's share of `count` chunks to shared memory: chunks warp, warp + warps, ..., some of them at a
/// time. row_of(i): the row of x of chunk i, as args; col_of(i): its first column.
template <DType type, bool kNorm, int kAtOnce, class RowOf, class ColOf>
__device__ __forceinline__ void bring_operands(typename VectorOperand<type>::Shared* shared, int count,
                                               int warp, int warps, int lane, const RowOf& row_of,
                                               const ColOf& col_of) {
  using Operand = VectorOperand<type>;
  for (int first = warp; first < count; first += kAtOnce * warps) {
    VectorX<Operand::kGroups> x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int chunk = min(first + i * warps, count - 1);  // no branch: all loads are issued together
      const ProductArgs& row = row_of(chunk);
      x[i].template load<Operand, kNorm>(row, first + i * warps < count ? col_of(chunk) : row.cols, lane);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i * warps < count) Operand(x[i], lane).store(shared[first + i * warps], lane);
  }
}

}  // namespace minfer::cuda
