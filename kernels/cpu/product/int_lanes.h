#pragma once

#include "kernels/cpu/lanes/lanes.h"

// Sixteen 32-bit integers beside Lanes: the operations that unpack the small integers of quantised blocks.
namespace minfer::cpu {
inline namespace MINFER_ISA {

#if defined(__AVX512F__)

struct IntLanes {
  __m512i v;

  static IntLanes set(int32_t x) { return {_mm512_set1_epi32(x)}; }
  /// 16 bytes widened.
  static IntLanes load_u8(const uint8_t* p) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  static IntLanes load_i8(const int8_t* p) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  /// `value` in the lanes whose bit is set, 0 in the others.
  static IntLanes where(uint16_t bits, int32_t value) { return {_mm512_maskz_set1_epi32(bits, value)}; }
};

inline IntLanes operator&(IntLanes a, IntLanes b) {
  return {_mm512_and_si512(a.v, b.v)};
}
inline IntLanes operator|(IntLanes a, IntLanes b) {
  return {_mm512_or_si512(a.v, b.v)};
}
inline IntLanes operator-(IntLanes a, IntLanes b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
inline IntLanes operator<<(IntLanes a, int count) {
  return {_mm512_slli_epi32(a.v, static_cast<unsigned>(count))};
}
/// Logical shift.
inline IntLanes operator>>(IntLanes a, int count) {
  return {_mm512_srli_epi32(a.v, static_cast<unsigned>(count))};
}
inline Lanes to_float(IntLanes a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
/// The floats that have these bits.
inline Lanes as_float(IntLanes a) {
  return {_mm512_castsi512_ps(a.v)};
}
/// table[index & 15] in every lane.
inline Lanes lookup(Lanes table, IntLanes index) {
  return {_mm512_permutexvar_ps(index.v, table.v)};
}
/// a * b - c, rounded once.
inline Lanes fms(Lanes a, Lanes b, Lanes c) {
  return {_mm512_fmsub_ps(a.v, b.v, c.v)};
}

#elif defined(__AVX2__)

struct IntLanes {
  __m256i lo;
  __m256i hi;

  static IntLanes set(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static IntLanes load_u8(const uint8_t* p) {
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static IntLanes load_i8(const int8_t* p) {
    return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static IntLanes where(uint16_t bits, int32_t value) {
    return {where(_mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128), bits, value),
            where(_mm256_setr_epi32(1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15),
                  bits, value)};
  }

 private:
  static __m256i where(__m256i lane_bits, uint16_t bits, int32_t value) {
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(bits), lane_bits);
    return _mm256_and_si256(_mm256_cmpeq_epi32(set, lane_bits), _mm256_set1_epi32(value));
  }
};

inline IntLanes operator&(IntLanes a, IntLanes b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline IntLanes operator|(IntLanes a, IntLanes b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
inline IntLanes operator-(IntLanes a, IntLanes b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
inline IntLanes operator<<(IntLanes a, int count) {
  return {_mm256_slli_epi32(a.lo, count), _mm256_slli_epi32(a.hi, count)};
}
inline IntLanes operator>>(IntLanes a, int count) {
  return {_mm256_srli_epi32(a.lo, count), _mm256_srli_epi32(a.hi, count)};
}
inline Lanes to_float(IntLanes a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
inline Lanes as_float(IntLanes a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
inline __m256 lookup(Lanes table, __m256i index) {
  const __m256 low = _mm256_permutevar8x32_ps(table.lo, index);
  const __m256 high = _mm256_permutevar8x32_ps(table.hi, index);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));  // bit 3 to the sign
}
inline Lanes lookup(Lanes table, IntLanes index) {
  return {lookup(table, index.lo), lookup(table, index.hi)};
}
inline Lanes fms(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmsub_ps(a.lo, b.lo, c.lo), _mm256_fmsub_ps(a.hi, b.hi, c.hi)};
}

#else

struct IntLanes {
  int32_t v[kLanes];

  /// Lane i: value(i).
  template <class F>
  static IntLanes each(const F& value) {
    IntLanes r;
    for (int i = 0; i < kLanes; ++i)
      r.v[i] = value(i);
    return r;
  }
  static IntLanes set(int32_t x) {
    return each([&](int) { return x; });
  }
  static IntLanes load_u8(const uint8_t* p) {
    return each([&](int i) { return p[i]; });
  }
  static IntLanes load_i8(const int8_t* p) {
    return each([&](int i) { return p[i]; });
  }
  static IntLanes where(uint16_t bits, int32_t value) {
    return each([&](int i) { return (bits >> i & 1) != 0 ? value : 0; });
  }
};

#define MINFER_LANEWISE(type, signature, expression) \
  inline type signature {                            \
    type r;                                          \
    for (int i = 0; i < kLanes; ++i)                 \
      r.v[i] = (expression);                         \
    return r;                                        \
  }
MINFER_LANEWISE(IntLanes, operator&(IntLanes a, IntLanes b), a.v[i] & b.v[i])
MINFER_LANEWISE(IntLanes, operator|(IntLanes a, IntLanes b), a.v[i] | b.v[i])
MINFER_LANEWISE(IntLanes, operator-(IntLanes a, IntLanes b), a.v[i] - b.v[i])
MINFER_LANEWISE(IntLanes, operator<<(IntLanes a, int count), a.v[i] << count)
MINFER_LANEWISE(IntLanes, operator>>(IntLanes a, int count),
                static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> count))
MINFER_LANEWISE(Lanes, to_float(IntLanes a), static_cast<float>(a.v[i]))
MINFER_LANEWISE(Lanes, as_float(IntLanes a), std::bit_cast<float>(a.v[i]))
MINFER_LANEWISE(Lanes, lookup(Lanes table, IntLanes index), table.v[index.v[i] & 15])
MINFER_LANEWISE(Lanes, fms(Lanes a, Lanes b, Lanes c), std::fma(a.v[i], b.v[i], -c.v[i]))
#undef MINFER_LANEWISE

#endif

/// 32 bytes, to put small integers together before they are widened. Shifts move whole 64-bit words: mask
/// the bits that cross from byte to byte.
struct Bytes32 {
#if defined(__AVX2__)
  __m256i v;
#else
  uint64_t v[4];
#endif

  static Bytes32 load(const uint8_t* p) {
    Bytes32 r;
    std::memcpy(&r.v, p, sizeof r.v);
    return r;
  }
  /// Four words, the first one's bytes first.
  static Bytes32 of(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
#if defined(__AVX2__)
    return {_mm256_setr_epi64x(static_cast<int64_t>(a), static_cast<int64_t>(b), static_cast<int64_t>(c),
                               static_cast<int64_t>(d))};
#else
    return {{a, b, c, d}};
#endif
  }
  void store(uint8_t* p) const {
    std::memcpy(p, &v, sizeof v);
  }
};

#if defined(__AVX2__)
/// The bits of `mask` in every byte.
inline Bytes32 operator&(Bytes32 a, uint8_t mask) {
  return {_mm256_and_si256(a.v, _mm256_set1_epi8(static_cast<char>(mask)))};
}
inline Bytes32 operator|(Bytes32 a, Bytes32 b) {
  return {_mm256_or_si256(a.v, b.v)};
}
/// Byte by byte, modulo 256.
inline Bytes32 operator-(Bytes32 a, uint8_t b) {
  return {_mm256_sub_epi8(a.v, _mm256_set1_epi8(static_cast<char>(b)))};
}
inline Bytes32 operator<<(Bytes32 a, int count) {
  return {_mm256_slli_epi64(a.v, count)};
}
inline Bytes32 operator>>(Bytes32 a, int count) {
  return {_mm256_srli_epi64(a.v, count)};
}
/// -a in the bytes whose bit is set. No byte is 0.
inline Bytes32 negate_where(uint32_t bits, Bytes32 a) {
#if defined(__AVX512BW__)
  return {_mm256_mask_sub_epi8(a.v, bits, _mm256_setzero_si256(), a.v)};
#else
  const __m256i byte_of_lane =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit_of_lane = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int32_t>(bits)), byte_of_lane);
  const __m256i negated = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit_of_lane), bit_of_lane);
  return {_mm256_sub_epi8(_mm256_xor_si256(a.v, negated), negated)};
#endif
}
#else
inline constexpr uint64_t kTopBits = 0x8080808080808080;
#define MINFER_WORDWISE(signature, expression) \
  inline Bytes32 signature {                   \
    Bytes32 r;                                 \
    for (int i = 0; i < 4; ++i)                \
      r.v[i] = (expression);                   \
    return r;                                  \
  }
MINFER_WORDWISE(operator&(Bytes32 a, uint8_t mask), a.v[i] & mask * uint64_t{0x0101010101010101})
MINFER_WORDWISE(operator|(Bytes32 a, Bytes32 b), a.v[i] | b.v[i])
// b < 128 borrows nothing from a byte whose top bit is set.
MINFER_WORDWISE(operator-(Bytes32 a, uint8_t b),
                ((a.v[i] | kTopBits) - b * uint64_t{0x0101010101010101}) ^ (~a.v[i] & kTopBits))
MINFER_WORDWISE(operator<<(Bytes32 a, int count), a.v[i] << count)
MINFER_WORDWISE(operator>>(Bytes32 a, int count), a.v[i] >> count)
#undef MINFER_WORDWISE
inline Bytes32 negate_where(uint32_t bits, Bytes32 a) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  for (int i = 0; i < 4; ++i) {
    const uint64_t spread = (bits >> 8 * i & 255) * kOnes & 0x8040201008040201;
    const uint64_t negated = (spread + kOnes * 0x7f) >> 7 & kOnes;
    a.v[i] = (a.v[i] ^ negated * 255) + negated;  // no byte carries: none is 0
  }
  return a;
}
#endif

inline float widen_f16(uint16_t h) {
#if defined(__AVX2__)
  return _cvtsh_ss(h);
#else
  return f16_to_f32(h);
#endif
}

/// The f32 number with these bits in every lane.
inline Lanes broadcast_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return Lanes::broadcast(&value);
}

/// Makes the compiler read the object back from memory, not from the registers that were just stored.
template <class Object>
MINFER_ALWAYS_INLINE inline void keep_in_memory(Object& object) {
  asm("" : "+m"(object));
}

/// The f16 numbers at `p`, which has eight readable bytes: the first in the first eight lanes, the second in
/// the last eight.
MINFER_ALWAYS_INLINE inline Lanes broadcast_f16_halves(const void* p) {
#if defined(__AVX2__)
  alignas(16) float widened[4];
  _mm_store_ps(widened, _mm_cvtph_ps(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
  keep_in_memory(widened);
#else
  uint16_t h[2];
  std::memcpy(h, p, sizeof h);
  const float widened[2] = {widen_f16(h[0]), widen_f16(h[1])};
#endif
  return Lanes::broadcast_halves(widened);
}

/// The f16 number at `p`, which has eight readable bytes, in every lane. It is converted from memory and
/// broadcast from memory; each takes one instruction and leaves the shuffle port to the elements.
MINFER_ALWAYS_INLINE inline Lanes broadcast_f16(const void* p) {
#if defined(__AVX2__)
  alignas(16) float widened[4];
  _mm_store_ps(widened, _mm_cvtph_ps(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
  keep_in_memory(widened);
  return Lanes::broadcast(widened);
#else
  uint16_t h;
  std::memcpy(&h, p, sizeof h);
  return Lanes::set(widen_f16(h));
#endif
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
