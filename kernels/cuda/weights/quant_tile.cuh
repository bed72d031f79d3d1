#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/weights/weight_layout.h"
#include "kernels/fp8.h"
#include "kernels/quant_types.h"

/// The bits of a tile of 16 rows x 256 columns of a quantised weight, in the order in which a warp's lanes
/// need them as A operands of mma.m16n8k16 and, four tiles below each other, of wgmma: lane 4 g + t holds rows g and g + 8 and, of each
/// 16 columns, columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
///
/// Planes of a tile, in this order:
///   quants     4-bit types: [unit 4][lane 32] 16 bytes = 4 words: word w has row g + 8 (w % 2) of group
///                2 unit + w / 2. Pair p of a word (columns 16 (p / 2) + 8 (p % 2) + 2 t and the next) has
///                bits 4 p ... and 16 + 4 p ...: `(word >> 4 p) & 0x000f000f` is a pair.
///              q8_0, fp8: [group 8][lane 32] 16 bytes: word w has columns 16 (w % 2) ... of row
///                g + 8 (w / 2): bytes are columns 2 t, 2 t + 8, 2 t + 1, 2 t + 9: a pair is the even or the odd bytes.
///   high bits  q5_k: [lane 32] 16 bytes: word u has those of unit u: pair p of its word w has bit 4 w + p,
///                and 16 more for the second column.
///              q6_k: [2][lane 32] 16 bytes: word 2 (u % 2) + w / 2 of half u / 2 has those of words
///                w = 0, 1 (2, 3): pair p has bits 2 (4 (w % 2) + p) ..., and 16 more.
///   scales     [lane 32] 8 bytes: what lane 4 g + t needs of groups 2 t and 2 t + 1 in rows g and g + 8.
///              q4_0, q8_0: four halves d, row g first.
///              mxfp4: 4 bytes a lane: the exponents of these four.
///              q6_k: bytes of sub-blocks 2 t, 2 t + 1, 8 + 2 t, 9 + 2 t (16 columns each), row g first.
///              q4_k, q5_k: six-bit scales of both groups, then their minima in 24 bits, row g first; the
///                upper 16 bits are a half: for t = 0 ... 3 d and dmin of row g, d and dmin of row g + 8.
///              fp8: no part of a lane: [g 8][columns 0 ... 127, 128 ... 255] two bf16: d of rows g and g + 8.
///   d          q6_k: [g 8] two halves: d of rows g and g + 8.
namespace minfer::cuda {

/// Byte offsets of a tile's planes; `kOffset`: what to take from an integer code to get the number that is scaled.
template <DType type>
struct Tile {
  static constexpr int kHighBits = type == DType::q5_k ? 1 : type == DType::q6_k ? 2 : 0;
  static constexpr bool kHasBytes = type == DType::q8_0 || type == DType::fp8;
  static constexpr int kHighAt = kHasBytes ? 4096 : 2048;
  static constexpr int kScalesAt = kHighAt + 512 * kHighBits;
  static constexpr int kLaneScales = type == DType::mxfp4 ? 4 : 8;  ///< bytes of scales that a lane has
  static constexpr int kScaleAt = kScalesAt + 256;                  ///< q6_k's d
  static constexpr int kBytes = static_cast<int>(tile_bytes(type));
  static constexpr int kOffset = type == DType::q4_0 ? 8 : type == DType::q6_k ? 32 : 0;
  static constexpr bool kHasMinima = type == DType::q4_k || type == DType::q5_k;
};

/// First column, within a group of 32, of pair p of lane t.
__host__ __device__ constexpr int pair_column(int t, int pair) {
  return 16 * (pair / 2) + 8 * (pair % 2) + 2 * t;
}

/// The bits of an element of a tile before its scale, as an integer without the offset where it is one.
template <DType type>
__device__ inline int tile_code(const uint8_t* tile, int row, int col) {
  const int group = col / 32;
  const int half = col / 16 % 2;
  const int lane = 4 * (row % 8) + col / 2 % 4;
  const int upper_row = row / 8;
  const auto* words = reinterpret_cast<const uint32_t*>(tile);
  if constexpr (Tile<type>::kHasBytes) {
    const uint32_t word = words[128 * group + 4 * lane + 2 * upper_row + half];
    const auto byte = static_cast<uint8_t>(word >> (16 * (col % 2) + 8 * (col / 8 % 2)));
    return type == DType::q8_0 ? static_cast<int8_t>(byte) : byte;
  }
  const int unit = group / 2;
  const int w = 2 * (group % 2) + upper_row;
  const int pair = 2 * half + col / 8 % 2;
  int code = words[128 * unit + 4 * lane + w] >> (4 * pair + 16 * (col % 2)) & 15;
  const auto* high = reinterpret_cast<const uint32_t*>(tile + Tile<type>::kHighAt);
  if constexpr (type == DType::q5_k) {
    code |= (high[4 * lane + unit] >> (4 * w + pair + 16 * (col % 2)) & 1) << 4;
  }
  if constexpr (type == DType::q6_k) {
    const uint32_t word = high[128 * (unit / 2) + 4 * lane + 2 * (unit % 2) + w / 2];
    code |= (word >> (2 * (4 * (w % 2) + pair) + 16 * (col % 2)) & 3) << 4;
  }
  return code - Tile<type>::kOffset;
}

/// The number of an element before its scale.
template <DType type>
__device__ inline float tile_number(const uint8_t* tile, int row, int col) {
  const int code = tile_code<type>(tile, row, col);
  if constexpr (type == DType::mxfp4)  // sign, exponent and mantissa where f32 has them
    return __uint_as_float((code & 8u) << 28 | (code & 7u) << 22) * 0x1p126f;
  if constexpr (type == DType::fp8) return e4m3_to_f32(static_cast<uint8_t>(code));
  return static_cast<float>(code);
}

/// value = scale * number - min.
struct ElementScale {
  float scale;
  float min;
};

/// Of the 16 columns that `col` is in.
template <DType type>
__device__ inline ElementScale tile_scale(const uint8_t* tile, int row, int col) {
  const int group = col / 32;
  const int upper_row = row / 8;
  const uint8_t* scales = tile + Tile<type>::kScalesAt + 4 * Tile<type>::kLaneScales * (row % 8);
  if constexpr (type == DType::q6_k) {
    const int sub_block = col / 16;
    const auto* bytes = reinterpret_cast<const int8_t*>(scales + 8 * (sub_block % 8 / 2) + 4 * upper_row);
    const auto* d = reinterpret_cast<const __half*>(tile + Tile<type>::kScaleAt);
    return {__half2float(d[2 * (row % 8) + upper_row]) *
                static_cast<float>(bytes[2 * (sub_block / 8) + sub_block % 2]),
            0.0f};
  } else if constexpr (Tile<type>::kHasMinima) {
    const auto* words = reinterpret_cast<const unsigned long long*>(scales);
    const auto six_bits = words[group / 2] >> (24 * upper_row + 6 * (group % 2));
    const auto* halves = reinterpret_cast<const __half*>(scales);
    return {__half2float(halves[8 * upper_row + 3]) * static_cast<float>(six_bits & 63),
            __half2float(halves[8 * upper_row + 7]) * static_cast<float>(six_bits >> 12 & 63)};
  } else if constexpr (type == DType::fp8) {
    const auto* d = reinterpret_cast<const uint16_t*>(tile + Tile<type>::kScalesAt);
    return {__uint_as_float(static_cast<uint32_t>(d[4 * (row % 8) + 2 * (col / 128) + upper_row]) << 16),
            0.0f};
  } else if constexpr (type == DType::mxfp4) {
    return {__uint_as_float(e8m0_bits(scales[4 * (group / 2) + 2 * upper_row + group % 2])), 0.0f};
  } else {
    const auto* halves = reinterpret_cast<const __half*>(scales + 8 * (group / 2) + 4 * upper_row);
    return {__half2float(halves[group % 2]), 0.0f};
  }
}

/// Elements col ... col + 3 of a row of a tile; col is a multiple of 4.
template <DType type>
__device__ inline float4 tile_values(const uint8_t* tile, int row, int col) {
  const ElementScale s = tile_scale<type>(tile, row, col);
  const auto value = [&](int i) { return s.scale * tile_number<type>(tile, row, col + i) - s.min; };
  return {value(0), value(1), value(2), value(3)};
}

}  // namespace minfer::cuda
