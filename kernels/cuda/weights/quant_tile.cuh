#pragma once

#include <bit>
#include <type_traits>

#include <cuda_fp16.h>

#include "kernels/cuda/weights/weight_layout.h"
#include "kernels/fp8.h"
#include "kernels/quant_types.h"

/// The bits of a tile of 16 rows x 256 columns of a quantised weight, in the order in which a warp's lanes need
/// them as A operands of mma.m16n8k16 and, with four tiles one below the other, of wgmma. Lane 4 g + t holds
/// rows g and g + 8 and, in each 16 columns, columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
///
/// Planes of a tile, in this order:
///   quants     4 bits: [unit 4][lane 32] 16 bytes = 4 words: word w has row g + 8 (w % 2) of group
///                2 unit + w / 2. Pair p of a word (columns 16 (p / 2) + 8 (p % 2) + 2 t and the next) has
///                bits 4 p ... and 16 + 4 p ...: `(word >> 4 p) & 0x000f000f` is a pair, and `(word >> 4 r) & 0x0f0f0f0f` has pairs r
///                and r + 2, a byte a column.
///              mxfp4: the same words; e2m1_bits() gives the places of the sign and the magnitude of a pair.
///              q2_k, q3_k, 2 bits: [half 2][lane 32] 16 bytes: word w has group 4 half + w: pair p of row g has bits 8 (p / 2) +
///                2 (p % 2) ..., of row g + 8 four bits further on, and 16 more for the second column.
///              q8_0, fp8: [group 8][columns 16 h ... 2][row 16] 16 bytes, so that wgmma takes them from shared memory as they are:
///                word t are columns 2 t, 2 t + 8, 2 t + 1, 2 t + 9: a pair is the even or the odd bytes.
///   high bits  q3_k, q5_0, q5_1, q5_k: [lane 32] 16 bytes: word u has the bits of unit u: pair p of its word w has bit 8 (p / 2) +
///                2 w + p % 2, and 16 more for the second column.
///              q6_k: like the quants of q2_k.
///   scales     [lane 32] 8 bytes: the scales that lane 4 g + t needs for groups 2 t and 2 t + 1 in rows g and g + 8.
///              q4_0, q5_0, q8_0, iq4_nl: four halves d, row g first.
///              q4_1, q5_1: 16 bytes a lane: then four halves m.
///              mxfp4: 4 bytes a lane: the exponents of these four.
///              q2_k, q6_k: bytes of sub-blocks 2 t, 2 t + 1, 8 + 2 t, 9 + 2 t (16 columns each), row g first.
///              q3_k, lut4: the same, six bits each: [lane 32] 4 bytes with the low four of these eight, [lane 32] 2 bytes with the others.
///              iq4_xs: of groups: [lane 32] 2 bytes with the low four bits of these four, [lane 32] a byte with the others.
///              q4_k, q5_k: six-bit scales of both groups, then their minima in 24 bits, row g first; the
///                upper 16 bits are a half: for t = 0 ... 3 d and dmin of row g, d and dmin of row g + 8.
///              fp8: not by lanes: [g 8][columns 0 ... 127, 128 ... 255] two bf16: d of rows g and g + 8.
///   d          q3_k, q6_k, iq4_xs, lut4: [g 8] two halves: d of rows g and g + 8; q2_k: then two halves dmin.
///   table      lut4: 16 bytes, an f32 factor of d, 12 bytes of zeros (lut4.h).
namespace minfer::cuda {

template <DType type, DType... types>
inline constexpr bool is_one_of = ((type == types) || ...);

/// Byte offsets of a tile's planes; `kOffset`: subtracted from an integer code to get the number that is scaled.
template <DType type>
struct Tile {
  static constexpr bool kHasBytes = is_one_of<type, DType::q8_0, DType::fp8>;
  static constexpr int kLowBits = kHasBytes ? 8 : is_one_of<type, DType::q2_k, DType::q3_k> ? 2 : 4;
  static constexpr int kHighBits = is_one_of<type, DType::q3_k, DType::q5_0, DType::q5_1, DType::q5_k> ? 1
                                   : type == DType::q6_k                                               ? 2
                                                                                                       : 0;
  static constexpr int kScaleCols =
      is_one_of<type, DType::q2_k, DType::q3_k, DType::q6_k, DType::lut4> ? 16 : 32;
  /// Six-bit scales in two planes.
  static constexpr bool kSplitsScales = is_one_of<type, DType::q3_k, DType::iq4_xs, DType::lut4>;
  /// A half m for each scale.
  static constexpr bool kHasHalfMinima = is_one_of<type, DType::q4_1, DType::q5_1>;
  static constexpr bool kPacksMinima = is_one_of<type, DType::q4_k, DType::q5_k>;
  static constexpr bool kHasMinima = kHasHalfMinima || kPacksMinima || type == DType::q2_k;
  /// Codes are indices into a table of sixteen numbers: kIq4Values, or for lut4 the tile's table.
  static constexpr bool kHasTable = is_one_of<type, DType::iq4_nl, DType::iq4_xs, DType::lut4>;

  /// A lane's bytes of scales.
  static constexpr int kLaneScales = type == DType::iq4_xs                       ? 3
                                     : type == DType::mxfp4                      ? 4
                                     : is_one_of<type, DType::q3_k, DType::lut4> ? 6
                                     : kHasHalfMinima                            ? 16
                                                                                 : 8;
  static constexpr int kHighAt = 512 * kLowBits;
  static constexpr int kScalesAt = kHighAt + 512 * kHighBits;
  static constexpr int kScaleAt = kScalesAt + 32 * kLaneScales;  ///< d of types that have one for all columns
  static constexpr int kTableAt = kScaleAt + 32;                 ///< lut4's
  static constexpr int kFactorAt = kTableAt + 16;
  static constexpr int kBytes = static_cast<int>(tile_bytes(type));
  static constexpr int kOffset = type == DType::q3_k   ? 4
                                 : type == DType::q4_0 ? 8
                                 : type == DType::q5_0 ? 16
                                 : type == DType::q6_k ? 32
                                                       : 0;
};

/// A lane's scales of q3_k, iq4_xs, lut4: scale i, j = i % kOfRow of row g + 8 (i / kOfRow), has bits 4 i ... of Low and 2 i ... of High.
template <DType type>
struct SplitScales {
  static constexpr int kOfRow = 64 / Tile<type>::kScaleCols;
  using Low = std::conditional_t<kOfRow == 4, uint32_t, uint16_t>;
  using High = std::conditional_t<kOfRow == 4, uint16_t, uint8_t>;
  static constexpr int kLowAt = Tile<type>::kScalesAt;
  static constexpr int kHighAt = kLowAt + 32 * static_cast<int>(sizeof(Low));
};
__host__ __device__ constexpr int split_scale(uint32_t low, uint32_t high, int i) {
  return static_cast<int>((low >> (4 * i) & 15) | (high >> (2 * i) & 3) << 4) - 32;
}

/// First column, within a group of 32, of pair p of lane t.
__host__ __device__ constexpr int pair_column(int t, int pair) {
  return 16 * (pair / 2) + 8 * (pair % 2) + 2 * t;
}

/// Numbers 4 i ... of the grid of iq4_nl and iq4_xs, one byte each.
__host__ __device__ constexpr uint32_t iq4_word(int i) {
  uint32_t word = 0;
  for (int j = 0; j < 4; ++j)
    word |= static_cast<uint32_t>(static_cast<uint8_t>(kIq4Values[4 * i + j])) << (8 * j);
  return word;
}
__host__ __device__ inline int iq4_value(int code) {
  constexpr uint32_t kWords[4] = {iq4_word(0), iq4_word(1), iq4_word(2), iq4_word(3)};
  return static_cast<int8_t>(kWords[code / 4] >> (8 * (code % 4)));
}

/// The shift to the kBits bits of pair `pair` of `low_word` in a word of a plane, for the pair's first column; the second
/// column is 16 bits further on. low_word counts a lane's sixteen words of 4 bits. Pairs r and r + 2 are 8 bits apart.
template <int kBits>
__host__ __device__ constexpr int plane_shift(int low_word, int pair) {
  constexpr int kLowWords = 4 / kBits;  // for which one word of the plane has bits
  return 8 * (pair / 2) + kBits * (low_word % kLowWords * 2 + pair % 2);
}

/// An element's kBits bits in a plane with the quants' order: low word `low_word`, pair `pair`, column `second` of the pair.
template <int kBits>
__host__ __device__ inline int plane_bits(const uint8_t* plane, int lane, int low_word, int pair,
                                          int second) {
  const int word = low_word / (4 / kBits);
  const uint32_t bits = reinterpret_cast<const uint32_t*>(plane)[128 * (word / 4) + 4 * lane + word % 4];
  return static_cast<int>(bits >> (plane_shift<kBits>(low_word, pair) + 16 * second) & ((1u << kBits) - 1));
}

/// The place of a pair's first column in a word of mxfp4: the bit of its sign, and the lowest of the three bits
/// of its magnitude. The second column is 16 bits further on.
struct E2m1Bits {
  int sign;
  int magnitude;
};
__host__ __device__ constexpr E2m1Bits e2m1_bits(int pair) {
  return pair == 0   ? E2m1Bits{15, 9}
         : pair == 1 ? E2m1Bits{12, 6}
         : pair == 2 ? E2m1Bits{14, 3}
                     : E2m1Bits{13, 0};
}

/// A pair of a word of e2m1 numbers: sign, exponent and mantissa at f16's positions give the number times 2^-14. For the last two pairs
/// a product moves the sign and the magnitude to their places, each by one of its two shifts; other bits of the product are masked.
__host__ __device__ inline uint32_t e2m1_halves(uint32_t word, int pair) {
  constexpr uint32_t kBits = 0x8e008e00u;
  if (pair == 0) return word & kBits;
  if (pair == 1) return word << 3 & kBits;
  if (pair == 2) return (word & 0x40384038u) * (1u << 1 | 1u << 6) & kBits;
  return (word & 0x20072007u) * (1u << 2 | 1u << 9) & kBits;
}

/// The bits of an element of a tile before its scale, as an integer; without the offset, if it has one.
template <DType type>
__host__ __device__ inline int tile_code(const uint8_t* tile, int row, int col) {
  using T = Tile<type>;
  const int group = col / 32;
  const int half = col / 16 % 2;
  if constexpr (T::kHasBytes) {
    const uint8_t byte =
        tile[512 * group + 256 * half + 16 * row + 4 * (col / 2 % 4) + 2 * (col % 2) + col / 8 % 2];
    return type == DType::q8_0 ? static_cast<int8_t>(byte) : byte;
  } else {
    const int lane = 4 * (row % 8) + col / 2 % 4;
    const int upper_row = row / 8;
    const int low_word = 2 * group + upper_row;
    const int pair = 2 * half + col / 8 % 2;
    if constexpr (type == DType::mxfp4) {
      const uint32_t word =
          reinterpret_cast<const uint32_t*>(tile)[128 * (low_word / 4) + 4 * lane + low_word % 4];
      const E2m1Bits place = e2m1_bits(pair);
      const uint32_t bits = word >> (16 * (col % 2));
      return static_cast<int>((bits >> place.sign & 1) << 3 | (bits >> place.magnitude & 7));
    }
    int code = plane_bits<T::kLowBits>(tile, lane, low_word, pair, col % 2);
    if constexpr (T::kHighBits > 0) {
      code |= plane_bits<T::kHighBits>(tile + T::kHighAt, lane, low_word, pair, col % 2) << T::kLowBits;
    }
    return code - T::kOffset;
  }
}

/// The number of an element before its scale.
template <DType type>
__host__ __device__ inline float tile_number(const uint8_t* tile, int row, int col) {
  const int code = tile_code<type>(tile, row, col);
  if constexpr (type == DType::mxfp4)  // sign, exponent and mantissa at f32's positions
    return std::bit_cast<float>((code & 8u) << 28 | (code & 7u) << 22) * 0x1p126f;
  if constexpr (type == DType::fp8) return e4m3_to_f32(static_cast<uint8_t>(code));
  if constexpr (type == DType::lut4)
    return static_cast<float>(static_cast<int8_t>(tile[Tile<type>::kTableAt + code]));
  if constexpr (Tile<type>::kHasTable) return static_cast<float>(iq4_value(code));
  return static_cast<float>(code);
}

/// value = scale * number - min.
struct ElementScale {
  float scale;
  float min;
};

/// The scale of the 16 columns that contain `col`.
template <DType type>
__host__ __device__ inline ElementScale tile_scale(const uint8_t* tile, int row, int col) {
  using T = Tile<type>;
  const int group = col / 32;
  const int sub_block = col / 16;
  const int upper_row = row / 8;
  const int lane = 4 * (row % 8) + (T::kScaleCols == 16 ? sub_block % 8 : group) / 2;
  const int of_row = T::kScaleCols == 16 ? sub_block / 8 * 2 + sub_block % 2 : group % 2;
  const uint8_t* scales = tile + T::kScalesAt + lane * T::kLaneScales;
  const auto* d = reinterpret_cast<const __half*>(tile + T::kScaleAt);
  const auto half = [](const __half* at) { return __half2float(*at); };
  if constexpr (T::kSplitsScales) {
    using S = SplitScales<type>;
    const auto low = reinterpret_cast<const typename S::Low*>(tile + S::kLowAt)[lane];
    const auto high = reinterpret_cast<const typename S::High*>(tile + S::kHighAt)[lane];
    const int scale = split_scale(low, high, S::kOfRow * upper_row + of_row);
    float own = half(d + 2 * (row % 8) + upper_row);
    if constexpr (type == DType::lut4) own *= *reinterpret_cast<const float*>(tile + T::kFactorAt);
    return {own * static_cast<float>(scale), 0.0f};
  } else if constexpr (type == DType::q2_k) {
    const uint8_t both = scales[4 * upper_row + of_row];
    return {half(d + 4 * (row % 8) + upper_row) * static_cast<float>(both & 15),
            half(d + 4 * (row % 8) + 2 + upper_row) * static_cast<float>(both >> 4)};
  } else if constexpr (type == DType::q6_k) {
    const auto scale = static_cast<int8_t>(scales[4 * upper_row + of_row]);
    return {half(d + 2 * (row % 8) + upper_row) * static_cast<float>(scale), 0.0f};
  } else if constexpr (T::kPacksMinima) {
    const auto* words = reinterpret_cast<const unsigned long long*>(scales);
    const auto six_bits = *words >> (24 * upper_row + 6 * of_row);
    const auto* halves = reinterpret_cast<const __half*>(tile + T::kScalesAt) + 16 * (row % 8);
    return {half(halves + 8 * upper_row + 3) * static_cast<float>(six_bits & 63),
            half(halves + 8 * upper_row + 7) * static_cast<float>(six_bits >> 12 & 63)};
  } else if constexpr (type == DType::fp8) {
    const auto* halves = reinterpret_cast<const uint16_t*>(tile + T::kScalesAt);
    const uint32_t bits = halves[4 * (row % 8) + 2 * (col / 128) + upper_row];
    return {std::bit_cast<float>(bits << 16), 0.0f};
  } else if constexpr (type == DType::mxfp4) {
    return {std::bit_cast<float>(e8m0_bits(scales[2 * upper_row + of_row])), 0.0f};
  } else {
    const auto* halves = reinterpret_cast<const __half*>(scales) + 2 * upper_row + of_row;
    return {half(halves), T::kHasHalfMinima ? -half(halves + 4) : 0.0f};
  }
}

/// Elements col ... col + 3 of a row of a tile; col is a multiple of 4.
template <DType type>
__host__ __device__ inline float4 tile_values(const uint8_t* tile, int row, int col) {
  const ElementScale s = tile_scale<type>(tile, row, col);
  const auto value = [&](int i) { return s.scale * tile_number<type>(tile, row, col + i) - s.min; };
  return {value(0), value(1), value(2), value(3)};
}

}  // namespace minfer::cuda
