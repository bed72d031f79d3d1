#pragma once

#include <array>

#include "kernels/cpu/block_decoders.h"

// Decoders of the formats with 256 elements a block (see block_decoders.h).
namespace minfer::cpu {
inline namespace MINFER_ISA {

template <>
struct Decoder<DType::q2_k> {
  using Block = BlockQ2K;
  static constexpr int kElements = kSuperBlock;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    const IntLanes packed = IntLanes::load_u8(block.scales);
    alignas(64) float scales[kLanes];
    alignas(64) float minima[kLanes];
    (to_float(packed & IntLanes::set(15)) * Lanes::set(widen_f16(block.d))).store(scales);
    (to_float(packed >> 4) * Lanes::set(-widen_f16(block.dmin))).store(minima);
    for (int half = 0; half < 2; ++half) {
      const IntLanes bytes[2] = {IntLanes::load_u8(block.qs + 32 * half),
                                 IntLanes::load_u8(block.qs + 32 * half + 16)};
      for (int j = 0; j < 8; ++j) {
        const IntLanes q = (bytes[j % 2] >> (j / 2 * 2)) & IntLanes::set(3);
        const int i = 8 * half + j;
        sink(i, fma(to_float(q), Lanes::set(scales[i]), Lanes::set(minima[i])));
      }
    }
  }
};

template <>
struct Decoder<DType::q3_k> {
  using Block = BlockQ3K;
  static constexpr int kElements = kSuperBlock;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    alignas(64) float scales[kLanes];
    unpack_scales(block, scales);
    const IntLanes third[2] = {IntLanes::load_u8(block.hmask), IntLanes::load_u8(block.hmask + 16)};
    for (int half = 0; half < 2; ++half) {
      const IntLanes bytes[2] = {IntLanes::load_u8(block.qs + 32 * half),
                                 IntLanes::load_u8(block.qs + 32 * half + 16)};
      for (int j = 0; j < 8; ++j) {
        const int i = 8 * half + j;
        const IntLanes low = (bytes[j % 2] >> (j / 2 * 2)) & IntLanes::set(3);
        const IntLanes high = ((third[j % 2] >> (i / 2)) << 2) & IntLanes::set(4);
        sink(i, to_float((low | high) - IntLanes::set(4)) * Lanes::set(scales[i]));
      }
    }
  }

 private:
  static void unpack_scales(const Block& block, float* scales) {
    std::array<uint8_t, kLanes> six_bits;
    for (int j = 0; j < kLanes; ++j) {
      const int low = block.scales[j % 8] >> (j / 8 * 4) & 15;
      const int high = block.scales[8 + j % 4] >> (j / 4 * 2) & 3;
      six_bits[j] = static_cast<uint8_t>(low | high << 4);
    }
    const IntLanes s = IntLanes::load_u8(six_bits.data()) - IntLanes::set(32);
    (to_float(s) * Lanes::set(widen_f16(block.d))).store(scales);
  }
};

/// The scales (first eight) and negated minima (last eight) of a q4_k or q5_k block.
inline void unpack_scales_and_minima(const uint8_t* packed, uint16_t d, uint16_t dmin, float* out) {
  uint32_t word[3];
  std::memcpy(word, packed, sizeof word);
  // Four 6-bit numbers a word; the last two words take their upper bits from the first two.
  const uint32_t six_bits[4] = {
      word[0] & 0x3f3f3f3f,                                       // scales 0..3
      (word[2] & 0x0f0f0f0f) | (word[0] >> 2 & 0x30303030),       // scales 4..7
      word[1] & 0x3f3f3f3f,                                       // minima 0..3
      (word[2] >> 4 & 0x0f0f0f0f) | (word[1] >> 2 & 0x30303030),  // minima 4..7
  };
  uint8_t bytes[kLanes];
  std::memcpy(bytes, six_bits, sizeof bytes);
  const float s = widen_f16(d);
  const float m = -widen_f16(dmin);
  const float factors[kLanes] = {s, s, s, s, s, s, s, s, m, m, m, m, m, m, m, m};
  (to_float(IntLanes::load_u8(bytes)) * Lanes::load(factors)).store(out);
}

template <>
struct Decoder<DType::q4_k> {
  using Block = BlockQ4K;
  static constexpr int kElements = kSuperBlock;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    alignas(64) float scales[kLanes];
    unpack_scales_and_minima(block.scales, block.d, block.dmin, scales);
    for (int pair = 0; pair < 4; ++pair) {
      const uint8_t* qs = block.qs + 32 * pair;
      const IntLanes bytes[2] = {IntLanes::load_u8(qs), IntLanes::load_u8(qs + 16)};
      const Lanes even = sub_block_table(scales, 2 * pair);
      const Lanes odd = sub_block_table(scales, 2 * pair + 1);
      sink(4 * pair, lookup(even, bytes[0]));
      sink(4 * pair + 1, lookup(even, bytes[1]));
      sink(4 * pair + 2, lookup(odd, bytes[0] >> 4));
      sink(4 * pair + 3, lookup(odd, bytes[1] >> 4));
    }
  }

 private:
  static Lanes sub_block_table(const float* scales, int j) {
    return fma(nibble_values(), Lanes::set(scales[j]), Lanes::set(scales[8 + j]));
  }
};

template <>
struct Decoder<DType::q5_k> {
  using Block = BlockQ5K;
  static constexpr int kElements = kSuperBlock;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    alignas(64) float scales[kLanes];
    unpack_scales_and_minima(block.scales, block.d, block.dmin, scales);
    const IntLanes fifth[2] = {IntLanes::load_u8(block.qh), IntLanes::load_u8(block.qh + 16)};
    for (int j = 0; j < 8; ++j) {
      for (int half = 0; half < 2; ++half) {
        const IntLanes low =
            (IntLanes::load_u8(block.qs + 32 * (j / 2) + 16 * half) >> (j % 2 * 4)) & IntLanes::set(15);
        const IntLanes high = ((fifth[half] >> j) << 4) & IntLanes::set(16);
        sink(2 * j + half, fma(to_float(low | high), Lanes::set(scales[j]), Lanes::set(scales[8 + j])));
      }
    }
  }
};

template <>
struct Decoder<DType::q6_k> {
  using Block = BlockQ6K;
  static constexpr int kElements = kSuperBlock;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    alignas(64) float scales[kLanes];
    (to_float(IntLanes::load_i8(block.scales)) * Lanes::set(widen_f16(block.d))).store(scales);
    for (int half = 0; half < 2; ++half) {
      const uint8_t* ql = block.ql + 64 * half;
      const uint8_t* qh = block.qh + 32 * half;
      for (int j = 0; j < 8; ++j) {  // sixteen elements each
        const IntLanes low = (IntLanes::load_u8(ql + j % 4 * 16) >> (j / 4 * 4)) & IntLanes::set(15);
        const IntLanes high = ((IntLanes::load_u8(qh + j % 2 * 16) >> (j / 2 * 2)) << 4) & IntLanes::set(48);
        const int i = 8 * half + j;
        sink(i, to_float((low | high) - IntLanes::set(32)) * Lanes::set(scales[i]));
      }
    }
  }
};

template <>
struct Decoder<DType::iq4_xs> {
  using Block = BlockIq4Xs;
  static constexpr int kElements = kSuperBlock;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    const float d = widen_f16(block.d);
    for (int j = 0; j < 8; ++j) {
      const int low = block.scales_l[j / 2] >> (j % 2 * 4) & 15;
      const int high = block.scales_h >> (2 * j) & 3;
      const Lanes table = iq4_values() * Lanes::set(d * static_cast<float>((low | high << 4) - 32));
      decode_nibbles(block.qs + 16 * j, table, 2 * j, sink);
    }
  }
};

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
