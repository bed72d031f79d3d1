#pragma once

#include "kernels/cpu/product/block_decoders.h"

// Decoders of the formats with 256 elements a block (see block_decoders.h).
//
// If an element is more than a nibble, unpack() puts the elements together as bytes, 32 at a time, and
// decode() widens them from there. Scales and minima are read back from memory as well: a load broadcasts for
// free, while a broadcast from a register would take the port that the widening needs.
namespace minfer::cpu {
inline namespace MINFER_ISA {

/// Elements as bytes, with kNumbers numbers for each `kVectorsPerScale` times sixteen of them.
template <int kVectorsPerScale, int kNumbers>
struct UnpackedBlock {
  alignas(64) uint8_t q[kSuperBlock];
  alignas(64) float numbers[kNumbers * (kSuperBlock / kLanes) / kVectorsPerScale];
};

/// Types whose elements are q * scale - minimum: `numbers` holds all scales, then all minima.
template <class Block, int kVectorsPerScale>
struct OffsetDecoder : DecoderTraits<Block, UnpackedBlock<kVectorsPerScale, 2>, kSuperBlock, 8> {
  template <class Sink>
  MINFER_ALWAYS_INLINE static void decode(const Block&, const UnpackedBlock<kVectorsPerScale, 2>& state,
                                          int chunk, Sink&& sink) {
    unroll<2>([&](auto j) MINFER_ALWAYS_INLINE {
      const int i = 2 * chunk + j;
      const float* scale = state.numbers + i / kVectorsPerScale;
      const Lanes q = to_float(IntLanes::load_u8(state.q + kLanes * i));
      sink(i, fms(q, Lanes::broadcast(scale), Lanes::broadcast(scale + kLanes / kVectorsPerScale)));
    });
  }
};

/// Types whose elements are q * scale with a signed q, and a scale for every sixteen.
template <class Block>
struct SignedDecoder : DecoderTraits<Block, UnpackedBlock<1, 1>, kSuperBlock, 8> {
  template <class Sink>
  MINFER_ALWAYS_INLINE static void decode(const Block&, const UnpackedBlock<1, 1>& state, int chunk,
                                          Sink&& sink) {
    unroll<2>([&](auto j) MINFER_ALWAYS_INLINE {
      const int i = 2 * chunk + j;
      const auto* q = reinterpret_cast<const int8_t*>(state.q) + kLanes * i;
      sink(i, to_float(IntLanes::load_i8(q)) * Lanes::broadcast(state.numbers + i));
    });
  }
};

template <>
struct Decoder<DType::q2_k> : OffsetDecoder<BlockQ2K, 1> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const Bytes32 packed = Bytes32::load(block.qs + 32 * (j / 4));
      ((packed >> (2 * (j % 4))) & 3).store(state.q + 32 * j);
    });
    const IntLanes packed = IntLanes::load_u8(block.scales);
    (to_float(packed & IntLanes::set(15)) * Lanes::set(widen_f16(block.d))).store(state.numbers);
    (to_float(packed >> 4) * Lanes::set(widen_f16(block.dmin))).store(state.numbers + kLanes);
    keep_in_memory(state);
  }
};

template <>
struct Decoder<DType::q3_k> : SignedDecoder<BlockQ3K> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    const Bytes32 thirds = Bytes32::load(block.hmask);
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const Bytes32 low = (Bytes32::load(block.qs + 32 * (j / 4)) >> (2 * (j % 4))) & 3;
      const Bytes32 third = ((thirds >> j) << 2) & 4;
      ((low | third) - 4).store(state.q + 32 * j);
    });
    (unpack_scales(block.scales) * Lanes::set(widen_f16(block.d))).store(state.numbers);
    keep_in_memory(state);
  }

 private:
  MINFER_ALWAYS_INLINE static Lanes unpack_scales(const uint8_t* packed) {
    uint32_t word[3];
    std::memcpy(word, packed, sizeof word);
    // Each word holds four 6-bit scales: the low nibbles, then the high nibbles of the first two words;
    // the upper bits are from the third word.
    const uint32_t six_bits[4] = {
        (word[0] & 0x0f0f0f0f) | (word[2] << 4 & 0x30303030),
        (word[1] & 0x0f0f0f0f) | (word[2] << 2 & 0x30303030),
        (word[0] >> 4 & 0x0f0f0f0f) | (word[2] & 0x30303030),
        (word[1] >> 4 & 0x0f0f0f0f) | (word[2] >> 2 & 0x30303030),
    };
    uint8_t bytes[kLanes];
    std::memcpy(bytes, six_bits, sizeof bytes);
    return to_float(IntLanes::load_u8(bytes) - IntLanes::set(32));
  }
};

/// The eight scales, then the eight minima of a q4_k or q5_k block: its small integers times d and dmin.
/// A word holds four six-bit numbers: the first four of each kind are whole, the last four are nibbles
/// with the upper bits of the first words.
template <class Block>
MINFER_ALWAYS_INLINE inline Lanes unpack_scales_and_minima(const Block& block) {
  alignas(16) uint8_t bytes[kLanes];
#if defined(__AVX2__)
  const __m128i words =
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(&block));  // d and dmin, then three words
  const __m128i first = _mm_shuffle_epi32(words, 0b10'10'01'01);
  const __m128i last = _mm_shuffle_epi32(words, 0b11'11'11'11);
  const __m128i upper = _mm_and_si128(_mm_srlv_epi32(first, _mm_setr_epi32(0, 2, 0, 2)),
                                      _mm_setr_epi32(0x3f3f3f3f, 0x30303030, 0x3f3f3f3f, 0x30303030));
  const __m128i lower = _mm_and_si128(_mm_srlv_epi32(last, _mm_setr_epi32(0, 0, 0, 4)),
                                      _mm_setr_epi32(0, 0x0f0f0f0f, 0, 0x0f0f0f0f));
  _mm_store_si128(reinterpret_cast<__m128i*>(bytes), _mm_or_si128(upper, lower));
#else
  uint32_t word[3];
  std::memcpy(word, block.scales, sizeof word);
  const uint32_t six_bits[4] = {
      word[0] & 0x3f3f3f3f,
      (word[2] & 0x0f0f0f0f) | (word[0] >> 2 & 0x30303030),
      word[1] & 0x3f3f3f3f,
      (word[2] >> 4 & 0x0f0f0f0f) | (word[1] >> 2 & 0x30303030),
  };
  std::memcpy(bytes, six_bits, sizeof bytes);
#endif
  return to_float(IntLanes::load_u8(bytes)) * broadcast_f16_halves(&block.d);
}

struct ScalesAndMinima {
  alignas(64) float numbers[kLanes];  ///< the scale of each sub-block, then the minimum of each
};

template <>
struct Decoder<DType::q4_k> : DecoderTraits<BlockQ4K, ScalesAndMinima, kSuperBlock, 4> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    unpack_scales_and_minima(block).store(state.numbers);
    keep_in_memory(state);
  }
  template <class Sink>
  MINFER_ALWAYS_INLINE static void decode(const Block& block, const State& state, int chunk, Sink&& sink) {
    const uint8_t* qs = block.qs + 32 * chunk;
    const IntLanes bytes[2] = {IntLanes::load_u8(qs), IntLanes::load_u8(qs + 16)};
    const Lanes even = table(state, 2 * chunk);
    const Lanes odd = table(state, 2 * chunk + 1);
    sink(4 * chunk, lookup(even, bytes[0]));
    sink(4 * chunk + 1, lookup(even, bytes[1]));
    sink(4 * chunk + 2, lookup(odd, bytes[0] >> 4));
    sink(4 * chunk + 3, lookup(odd, bytes[1] >> 4));
  }

 private:
  /// The value of each nibble in sub-block j.
  MINFER_ALWAYS_INLINE static Lanes table(const State& state, int j) {
    return fms(nibble_values(), Lanes::broadcast(state.numbers + j), Lanes::broadcast(state.numbers + 8 + j));
  }
};

template <>
struct Decoder<DType::q5_k> : OffsetDecoder<BlockQ5K, 2> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    const Bytes32 fifths = Bytes32::load(block.qh);
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const Bytes32 low = (Bytes32::load(block.qs + 32 * (j / 2)) >> (4 * (j % 2))) & 15;
      const Bytes32 fifth = ((fifths >> j) << 4) & 16;
      (low | fifth).store(state.q + 32 * j);
    });
    unpack_scales_and_minima(block).store(state.numbers);
    keep_in_memory(state);
  }
};

template <>
struct Decoder<DType::q6_k> : SignedDecoder<BlockQ6K> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const Bytes32 low = (Bytes32::load(block.ql + 64 * (j / 4) + 32 * (j % 2)) >> (j % 4 / 2 * 4)) & 15;
      const Bytes32 high = shifted(Bytes32::load(block.qh + 32 * (j / 4)), 4 - 2 * (j % 4)) & 48;
      ((low | high) - 32).store(state.q + 32 * j);
    });
    (to_float(IntLanes::load_i8(block.scales)) * Lanes::set(widen_f16(block.d))).store(state.numbers);
    keep_in_memory(state);
  }

 private:
  /// Shifts up by `count` bits, or down if `count` is negative.
  MINFER_ALWAYS_INLINE static Bytes32 shifted(Bytes32 bytes, int count) {
    return count >= 0 ? bytes << count : bytes >> -count;
  }
};

struct EightScales {
  float scales[8];
};

template <>
struct Decoder<DType::iq4_xs> : DecoderTraits<BlockIq4Xs, EightScales, kSuperBlock, 8> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    const float d = widen_f16(block.d);
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const int low = block.scales_l[j / 2] >> (j % 2 * 4) & 15;
      const int high = block.scales_h >> (2 * j) & 3;
      state.scales[j] = d * static_cast<float>((low | high << 4) - 32);
    });
    keep_in_memory(state);
  }
  template <class Sink>
  MINFER_ALWAYS_INLINE static void decode(const Block& block, const State& state, int chunk, Sink&& sink) {
    decode_nibbles(block.qs + 16 * chunk, iq4_values() * Lanes::broadcast(&state.scales[chunk]), 2 * chunk,
                   sink);
  }
};

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
