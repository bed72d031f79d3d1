#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/weights/quant_tile.cuh"

/// A tile of a quantised weight in the registers of a warp, and its conversion to bf16 operands of mma.m16n8k16.
///
/// A quant becomes a bf16 when its bits are put into the mantissa of 128: 0x4300 | q is 128 + q for q < 128.
/// The caller takes the 128 and the type's own offset off the sum (kBias times the sum of x), or off each
/// number (kExact); both are exact. q8_0 has eight bits: the lower seven make 128 + (q & 127), from which 128
/// or, for a negative q, 256 is subtracted at once. Numbers of iq4_nl, iq4_xs and lut4, which byte permutations
/// look up four at a time, are treated the same way. Shifts turn numbers of mxfp4 and fp8 into tiny bf16,
/// including subnormal ones, which are multiplied by a power of two.
namespace minfer::cuda {

template <DType type>
struct TileRegisters {
  static constexpr int kQuantLoads = Tile<type>::kLowBits;
  static constexpr int kHighLoads = Tile<type>::kHighBits;

  uint4 quants[kQuantLoads];
  uint4 high[kHighLoads > 0 ? kHighLoads : 1];
  uint2 scales;  ///< of SplitScales: Low, High
  uint2 minima;  ///< q4_1, q5_1; q2_k: dmin
  uint32_t d;    ///< q2_k, q3_k, q6_k, iq4_xs, lut4; mxfp4 and fp8: their scales
  uint4 table;   ///< lut4
  float factor;  ///< lut4: the factor of d

  TileRegisters() = default;
  /// `tile`: in shared or global memory.
  __device__ __forceinline__ TileRegisters(const char* tile, int lane) {
#pragma unroll
    for (int i = 0; i < kQuantLoads; ++i)
      load_quants(tile, lane, i, quants[i]);
#pragma unroll
    for (int i = 0; i < kHighLoads; ++i)
      high[i] = *reinterpret_cast<const uint4*>(tile + Tile<type>::kHighAt + 512 * i + 16 * lane);
    load_scales(tile, lane);
  }
  /// Loads the i-th 512 bytes of the quants.
  static __device__ __forceinline__ void load_quants(const char* tile, int lane, int i, uint4& words) {
    const char* at = tile + 512 * i;
    if constexpr (!Tile<type>::kHasBytes) {
      words = *reinterpret_cast<const uint4*>(at + 16 * lane);
    } else if (__isShared(at)) {
      uint32_t matrices[4];
      load_matrices(matrices, shared_address(at + 16 * lane));
      words = {matrices[0], matrices[2], matrices[1], matrices[3]};
    } else {
      const auto word = [&](int matrix) {
        return *reinterpret_cast<const uint32_t*>(at + 128 * matrix + 4 * lane);
      };
      words = {word(0), word(2), word(1), word(3)};
    }
  }
  __device__ __forceinline__ void load_scales(const char* tile, int lane) {
    const char* at = tile + Tile<type>::kScalesAt;
    if constexpr (type == DType::mxfp4) {
      d = *reinterpret_cast<const uint32_t*>(at + 4 * lane);
    } else if constexpr (type == DType::fp8) {  // groups 2 t and 2 t + 1 lie in the same half of the columns
      d = *reinterpret_cast<const uint32_t*>(at + lane / 2 * 4);
    } else if constexpr (Tile<type>::kSplitsScales) {
      using S = SplitScales<type>;
      scales.x = reinterpret_cast<const typename S::Low*>(tile + S::kLowAt)[lane];
      scales.y = reinterpret_cast<const typename S::High*>(tile + S::kHighAt)[lane];
    } else if constexpr (Tile<type>::kHasHalfMinima) {
      const uint4 both = *reinterpret_cast<const uint4*>(at + 16 * lane);
      scales = make_uint2(both.x, both.y);
      minima = make_uint2(both.z, both.w);
    } else {
      scales = *reinterpret_cast<const uint2*>(at + 8 * lane);
    }
    if constexpr (type == DType::q2_k) {
      const uint2 both = *reinterpret_cast<const uint2*>(tile + Tile<type>::kScaleAt + lane / 4 * 8);
      d = both.x;
      minima.x = both.y;
    } else if constexpr (Tile<type>::kSplitsScales || type == DType::q6_k) {
      d = *reinterpret_cast<const uint32_t*>(tile + Tile<type>::kScaleAt + lane / 4 * 4);
    }
    if constexpr (type == DType::lut4) {
      table = *reinterpret_cast<const uint4*>(tile + Tile<type>::kTableAt);
      factor = *reinterpret_cast<const float*>(tile + Tile<type>::kFactorAt);
    }
  }
};

/// The offset in each number of an operand beside the quant.
template <DType type>
inline constexpr float kBias =
    Tile<type>::kHasBytes || Tile<type>::kHasTable || type == DType::mxfp4 ? 0.0f
                                                                           : 128.0f + Tile<type>::kOffset;

__device__ __forceinline__ uint32_t subtract_bf16(uint32_t a, uint32_t b) {
  const __nv_bfloat162 difference =
      __hsub2(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
  return reinterpret_cast<const uint32_t&>(difference);
}

/// Multiplies by a number that both halves of b hold.
__device__ __forceinline__ uint32_t multiply_bf16(uint32_t a, uint32_t b) {
  const __nv_bfloat162 product =
      __hmul2(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
  return reinterpret_cast<const uint32_t&>(product);
}

/// Word i of four; i is a compile-time constant.
__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ __forceinline__ uint32_t shift_right(uint32_t word, int bits) {
  return bits >= 0 ? word >> bits : word << -bits;
}

/// (word & mask) | bits in one instruction. Without the asm, the compiler makes two of it if mask and bits are constants.
__device__ __forceinline__ uint32_t insert_bits(uint32_t word, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}

/// Inserts pair `pair` of a plane's kBits bits for low word `word` (0 ... 15: row g + 8 (word % 2) of group
/// word / 2), at bit kTo of both halves of `rest`.
template <int kBits, int kTo>
__device__ __forceinline__ uint32_t insert_pair(const uint4* plane, int word, int pair, uint32_t rest) {
  constexpr int kLowWords = 4 / kBits;  // for which one word of the plane has bits
  constexpr uint32_t kMask = ((1u << kBits) - 1) << kTo;
  const int at = word / kLowWords;
  const int shift = plane_shift<kBits>(word, pair) - kTo;
  return insert_bits(shift_right(word_of(plane[at / 4], at % 4), shift), kMask << 16 | kMask, rest);
}

/// The same for pairs `pair` and `pair` + 2 together, at bit kTo of each byte of `rest`.
template <int kBits, int kTo>
__device__ __forceinline__ uint32_t insert_bytes(const uint4* plane, int word, int pair, uint32_t rest) {
  constexpr uint32_t kMask = (((1u << kBits) - 1) << kTo) * 0x01010101u;
  const int at = word / (4 / kBits);
  const int shift = plane_shift<kBits>(word, pair) - kTo;
  return insert_bits(shift_right(word_of(plane[at / 4], at % 4), shift), kMask, rest);
}

/// Pair `pair` of low word `word` as two bf16, with kBias in each.
template <DType type>
__device__ __forceinline__ uint32_t tile_pair(const TileRegisters<type>& tile, int word, int pair) {
  using T = Tile<type>;
  const uint32_t low = insert_pair<T::kLowBits, 0>(tile.quants, word, pair, 0x43004300u);
  if constexpr (T::kHighBits > 0) {
    return insert_pair<T::kHighBits, T::kLowBits>(tile.high, word, pair, low);
  } else {
    return low;
  }
}

/// Four signed bytes as two pairs: bytes 0 and 2, bytes 1 and 3.
__device__ __forceinline__ uint32_t byte_pair(uint32_t word, int pair) {
  const uint32_t bytes = word >> (8 * pair);
  return subtract_bf16(insert_bits(bytes, 0x007f007fu, 0x43004300u),
                       insert_bits(bytes, 0x00800080u, 0x43004300u));
}

/// The sixteen signed bytes that a tile's codes index.
template <DType type>
__device__ __forceinline__ uint4 table_of(const TileRegisters<type>& tile) {
  if constexpr (type == DType::lut4) return tile.table;
  return {iq4_word(0), iq4_word(1), iq4_word(2), iq4_word(3)};
}

/// Looks up pairs 2 half and 2 half + 1 of a word of indices into sixteen signed bytes; the bytes are in the order of byte_pair().
__device__ __forceinline__ uint32_t table_bytes(const uint4& table, uint32_t word, int half) {
  const uint32_t codes = __byte_perm(word, 0, half == 0 ? 0x4420 : 0x4431);  // four, in the lower 16 bits
  const uint32_t index = codes & 0x7777;
  const uint32_t low = __byte_perm(table.x, table.y, index);
  const uint32_t high = __byte_perm(table.z, table.w, index);
  return __byte_perm(low, high, (codes & 0x8888) >> 1 | 0x3210);
}

/// Pair `pair` of a word of e2m1 numbers. Sign, exponent and mantissa at bf16's positions give the number times 2^-126.
__device__ __forceinline__ uint32_t e2m1_pair(uint32_t word, int pair) {
  const E2m1Bits place = e2m1_bits(pair);
  const uint32_t magnitudes = shift_right(word, place.magnitude - 6) & 0x01c001c0u;
  return multiply_bf16(insert_bits(word << (15 - place.sign), 0x80008000u, magnitudes), 0x7e807e80u);
}

/// Four e4m3 numbers as two pairs, like byte_pair(). Sign, exponent and mantissa at bf16's positions give the number times 2^-120.
__device__ __forceinline__ uint32_t e4m3_pair(uint32_t word, int pair) {
  const uint32_t magnitudes = shift_right(word, 8 * pair - 4) & 0x07f007f0u;
  return multiply_bf16(insert_bits(shift_right(word, 8 * pair - 8), 0x80008000u, magnitudes), 0x7b807b80u);
}

/// The B operand of a lane for sixteen columns. `x` points to the first of its columns.
__device__ __forceinline__ uint2 x_operand(const __nv_bfloat16* x) {
  return {*reinterpret_cast<const uint32_t*>(x), *reinterpret_cast<const uint32_t*>(x + 8)};
}

/// The A operand of the sixteen columns i (0 ... 15) of a tile. kExact: without kBias, and with kMiddle subtracted.
template <DType type, bool kExact, int kMiddle = 0>
__device__ __forceinline__ void tile_operand(const TileRegisters<type>& tile, int i, uint32_t (&a)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int upper_row = j % 2;
    const int pair = j / 2;
    if constexpr (type == DType::q8_0) {
      a[j] = byte_pair(word_of(tile.quants[i / 2], 2 * upper_row + i % 2), pair);
    } else if constexpr (type == DType::fp8) {
      a[j] = e4m3_pair(word_of(tile.quants[i / 2], 2 * upper_row + i % 2), pair);
    } else if constexpr (type == DType::mxfp4) {
      a[j] = e2m1_pair(word_of(tile.quants[i / 4], i / 2 % 2 * 2 + upper_row), 2 * (i % 2) + pair);
    } else if constexpr (Tile<type>::kHasTable) {
      const uint32_t word = word_of(tile.quants[i / 4], i / 2 % 2 * 2 + upper_row);
      a[j] = byte_pair(table_bytes(table_of(tile), word, i % 2), pair);
    } else {
      a[j] = tile_pair(tile, i / 2 * 2 + upper_row, 2 * (i % 2) + pair);
      if constexpr (kExact) {
        constexpr uint32_t kHalf = 0x4300u + Tile<type>::kOffset + kMiddle;
        a[j] = subtract_bf16(a[j], kHalf << 16 | kHalf);
      }
    }
  }
}

/// Two e4m3 numbers, the lower or the upper half of a word, as f16.
__device__ __forceinline__ uint32_t e4m3_halves(uint32_t word, int half) {
#if __CUDA_ARCH__ >= 890
  uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<uint16_t>(word >> (16 * half))));
  return pair;
#else  // sign, exponent and mantissa at f16's positions give the number times 2^-8
  const uint32_t bytes = __byte_perm(word, 0, half == 0 ? 0x1404 : 0x3424);
  const uint32_t bits = insert_bits(bytes >> 1, 0x3f803f80u, bytes & 0x80008000u);
  const __half2 number = __hmul2(reinterpret_cast<const __half2&>(bits), __float2half2_rn(256.0f));
  return reinterpret_cast<const uint32_t&>(number);
#endif
}

/// True if a register of byte_operand() has columns of one half of a group; otherwise of both halves.
template <DType type>
inline constexpr bool kHasByteHalves = type == DType::q8_0 || Tile<type>::kHasTable;

template <DType type>
__host__ __device__ constexpr int byte_column(int r, int pair, int t) {
  return (kHasByteHalves<type> ? 16 * r + 8 * pair : 8 * r + 16 * pair) + 2 * t;
}

/// True if products with one token use codes as f16 (tile_halves.cuh), not as signed bytes.
template <DType type>
inline constexpr bool kMultipliesHalves = is_one_of<type, DType::fp8, DType::mxfp4>;

/// The A operand of group `group` (0 ... 7) of a tile as signed bytes, with the type's offset in each. Register r of a row has
/// two pairs of columns: bytes 0 and 2 the pair at byte_column(r, 0, t) of the group, bytes 1 and 3 the pair at (r, 1, t).
template <DType type>
__device__ __forceinline__ void byte_operand(const TileRegisters<type>& tile, int group, uint32_t (&a)[4]) {
  static_assert(!kMultipliesHalves<type>);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int upper_row = j % 2;
    const int r = j / 2;
    const int word = 2 * group + upper_row;
    if constexpr (type == DType::q8_0) {
      a[j] = word_of(tile.quants[group], 2 * upper_row + r);
    } else if constexpr (Tile<type>::kHasTable) {
      a[j] = table_bytes(table_of(tile), word_of(tile.quants[word / 4], word % 4), r);
    } else {
      a[j] = insert_bytes<Tile<type>::kLowBits, 0>(tile.quants, word, r, 0);
      if constexpr (Tile<type>::kHighBits > 0)
        a[j] = insert_bytes<Tile<type>::kHighBits, Tile<type>::kLowBits>(tile.high, word, r, a[j]);
    }
  }
}

/// The A operand of the sixteen columns i (0 ... 15) of a tile of fp8 as f16. A pair has a column of the first
/// eight and the column eight after it: columns 2 t and 2 t + 8, then 2 t + 1 and 2 t + 9.
__device__ __forceinline__ void half_operand(const TileRegisters<DType::fp8>& tile, int i, uint32_t (&a)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j)
    a[j] = e4m3_halves(word_of(tile.quants[i / 2], j % 2 * 2 + i % 2), j / 2);
}

/// The packed scales of q4_k and q5_k in lane 4 g + t, for groups 2 t and 2 t + 1 in rows g and g + 8
/// (row = 0, 1). All lanes call its functions together.
struct SixBitScales {
  uint32_t bits[2];
  float own;  ///< d or dmin of one of the rows

  __device__ __forceinline__ explicit SixBitScales(uint2 packed)
      : bits{packed.x, __funnelshift_r(packed.x, packed.y, 24)},
        own(__half2float(__ushort_as_half(static_cast<uint16_t>(packed.y >> 16)))) {}

  __device__ __forceinline__ float d(int row) const { return __shfl_sync(0xffffffffu, own, 2 * row, 4); }
  __device__ __forceinline__ float dmin(int row) const {
    return __shfl_sync(0xffffffffu, own, 2 * row + 1, 4);
  }
  /// Without d and dmin; group j = 0, 1 of the lane.
  __device__ __forceinline__ float scale(int row, int j) const {
    return static_cast<float>(bits[row] >> (6 * j) & 63);
  }
  __device__ __forceinline__ float min(int row, int j) const {
    return static_cast<float>(bits[row] >> (12 + 6 * j) & 63);
  }
  /// Both of the lane's minima as bf16.
  __device__ __forceinline__ uint32_t minima(int row) const {
    constexpr uint32_t kMagic = 0x43004300u;
    const uint32_t pair = (bits[row] >> 12 & 63) | (bits[row] >> 2 & 63u << 16);
    return subtract_bf16(pair | kMagic, kMagic);
  }
};

/// The scales of a tile in lane 4 g + t, as numbers, for rows g and g + 8. Types with a scale for 16 columns:
/// sub-blocks 2 t, 2 t + 1, 8 + 2 t, 9 + 2 t; other types: groups 2 t and 2 t + 1 of 32.
template <DType type>
struct TileScales {
  static constexpr int kCount = Tile<type>::kScaleCols == 16 ? 4 : 2;
  float scale[2][kCount];
  float min[2][kCount];  ///< for types with minima

  __device__ __forceinline__ explicit TileScales(const TileRegisters<type>& tile) {
    const uint32_t words[2] = {tile.scales.x, tile.scales.y};
    if constexpr (type == DType::q2_k) {
      const float2 d = two_of(tile.d), dmin = two_of(tile.minima.x);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t both = words[i / 4] >> (8 * (i % 4));
        scale[i / 4][i % 4] = (i < 4 ? d.x : d.y) * static_cast<float>(both & 15);
        min[i / 4][i % 4] = (i < 4 ? dmin.x : dmin.y) * static_cast<float>(both >> 4 & 15);
      }
    } else if constexpr (type == DType::q6_k) {
      const float2 d = two_of(tile.d);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const auto number = static_cast<int8_t>(words[i / 4] >> (8 * (i % 4)));
        scale[i / 4][i % 4] = (i < 4 ? d.x : d.y) * static_cast<float>(number);
      }
    } else if constexpr (Tile<type>::kSplitsScales) {
      float2 d = two_of(tile.d);
      if constexpr (type == DType::lut4) d = {d.x * tile.factor, d.y * tile.factor};
#pragma unroll
      for (int i = 0; i < 2 * kCount; ++i) {
        const int number = split_scale(words[0], words[1], i);
        scale[i / kCount][i % kCount] = (i < kCount ? d.x : d.y) * static_cast<float>(number);
      }
    } else if constexpr (Tile<type>::kPacksMinima) {
      const SixBitScales packed(tile.scales);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float d = packed.d(row);
        const float dmin = packed.dmin(row);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          scale[row][j] = d * packed.scale(row, j);
          min[row][j] = dmin * packed.min(row, j);
        }
      }
    } else if constexpr (type == DType::mxfp4) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scale[i / 2][i % 2] = __uint_as_float(e8m0_bits(tile.d >> (8 * i) & 255));
    } else if constexpr (type == DType::fp8) {
      scale[0][0] = scale[0][1] = __uint_as_float(tile.d << 16);
      scale[1][0] = scale[1][1] = __uint_as_float(tile.d & 0xffff0000u);
    } else {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float2 d = two_of(words[row]);
        scale[row][0] = d.x;
        scale[row][1] = d.y;
        if constexpr (Tile<type>::kHasHalfMinima) {
          const float2 m = two_of(row == 0 ? tile.minima.x : tile.minima.y);
          min[row][0] = -m.x;
          min[row][1] = -m.y;
        }
      }
    }
  }

 private:
  static __device__ __forceinline__ float2 two_of(uint32_t halves) {
    return __half22float2(reinterpret_cast<const __half2&>(halves));
  }
};

/// The scale or minimum of group `group` of a row, from the lane that holds it. Groups have 16 columns in types
/// with a scale for 16, otherwise 32.
template <DType type>
__device__ __forceinline__ float of_group(const float (&held)[TileScales<type>::kCount], int group) {
  const int index = Tile<type>::kScaleCols == 16 ? group / 8 * 2 + group % 2 : group % 2;
  return __shfl_sync(kWholeWarp, held[index], group % 8 / 2, 4);
}

/// Starts the copy of a tile to shared memory. A warp calls it.
template <DType type>
__device__ __forceinline__ void copy_tile(char* to, const char* from, int lane) {
  constexpr int kBytes = Tile<type>::kBytes;
#pragma unroll
  for (int at = 0; at < kBytes; at += 512) {
    if (at + 512 <= kBytes || at + 16 * lane < kBytes)
      copy_async_in_order(to + at + 16 * lane, from + at + 16 * lane);
  }
}

/// The same for the tile of columns 256 index ... of a strip.
template <DType type>
__device__ __forceinline__ void copy_tile(char* to, const void* matrix, int cols, int strip, int index,
                                          int lane) {
  const int64_t tile = static_cast<int64_t>(strip) * ((cols + kTileCols - 1) / kTileCols) + index;
  copy_tile<type>(to, static_cast<const char*>(matrix) + tile * Tile<type>::kBytes, lane);
}

}  // namespace minfer::cuda
