#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels/half.h"

// Sixteen f32 lanes, the unit in which every CPU kernel counts: one AVX-512 register, two AVX2 registers
// or an array.
//
// Each operation rounds alike on all three (fused multiply-adds are explicit, reductions have one fixed
// tree), so a kernel written in Lanes gives the same bits on every instruction set. A file's compile flags
// choose the variant; the inline namespace keeps the variants of a template apart at link time. For the
// same reason code in Lanes calls no inline function of the standard library that might stay out of line:
// the linker keeps one copy for the whole program, and the processor may not be able to run it.
#if defined(__AVX512F__)
#define MINFER_ISA isa_avx512
#elif defined(__AVX2__)
#define MINFER_ISA isa_avx2
#else
#define MINFER_ISA isa_portable
#endif

// For kernels that must become one loop body: sums in arrays stay in registers only if every index is a
// constant and nothing is called. The portable variant keeps its lanes in memory anyway and uses plain loops
// and calls: unrolled, it would take minutes to compile and megabytes of code.
#if defined(__AVX2__)
#define MINFER_ALWAYS_INLINE __attribute__((always_inline))
#else
#define MINFER_ALWAYS_INLINE
#endif

namespace minfer::cpu {
inline namespace MINFER_ISA {

inline constexpr int kLanes = 16;

#if defined(__AVX512F__)

struct Lanes {
  __m512 v;

  static Lanes set(float x) { return {_mm512_set1_ps(x)}; }
  static Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
  /// *p in every lane. Loaded as an integer, because AMD's Zen 4 sends a vbroadcastss from memory to the
  /// shuffle ports (1.3 cycles beside a multiply-add, 2 beside a permutation), but a vpbroadcastd to the
  /// load ports alone (1 beside either).
  static Lanes broadcast(const float* p) {
    int32_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return {_mm512_castsi512_ps(_mm512_set1_epi32(bits))};
  }
  /// p[0] in the first eight lanes, p[1] in the last eight.
  static Lanes broadcast_halves(const float* p) {
    return {_mm512_mask_mov_ps(broadcast(p).v, 0xff00, broadcast(p + 1).v)};
  }
  /// 16 bf16 values widened; exact.
  static Lanes load_bf16(const uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
  }
  /// 16 f16 values widened; exact.
  static Lanes load_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
};

#define MINFER_LANEWISE(function, instruction) \
  inline Lanes function(Lanes a, Lanes b) {    \
    return {_mm512_##instruction(a.v, b.v)};   \
  }
/// a * b + c, rounded once.
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
/// 2^(n/2) and 2^(n - n/2) for the integers n in the low bits of `magic` (see exp in vector_math.h).
inline void split_exponent(Lanes magic, Lanes* first, Lanes* second) {
  const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(magic.v), _mm512_set1_epi32(0x4b400000));
  const __m512i half = _mm512_srai_epi32(n, 1);
  const __m512i bias = _mm512_set1_epi32(127);
  first->v = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(half, bias), 23));
  second->v = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(n, half), bias), 23));
}

#elif defined(__AVX2__)

struct Lanes {
  __m256 lo;
  __m256 hi;

  static Lanes set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static Lanes broadcast(const float* p) { return set(*p); }
  static Lanes broadcast_halves(const float* p) { return {_mm256_set1_ps(p[0]), _mm256_set1_ps(p[1])}; }
  static Lanes load_bf16(const uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
  static Lanes load_f16(const uint16_t* p) { return {widen_f16(p), widen_f16(p + 8)}; }
  void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }

 private:
  static __m256 widen_bf16(const uint16_t* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static __m256 widen_f16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};

#define MINFER_LANEWISE(function, instruction)                                   \
  inline Lanes function(Lanes a, Lanes b) {                                      \
    return {_mm256_##instruction(a.lo, b.lo), _mm256_##instruction(a.hi, b.hi)}; \
  }
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

inline void split_exponent(__m256 magic, __m256* first, __m256* second) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(magic), _mm256_set1_epi32(0x4b400000));
  const __m256i half = _mm256_srai_epi32(n, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  *first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  *second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23));
}
inline void split_exponent(Lanes magic, Lanes* first, Lanes* second) {
  split_exponent(magic.lo, &first->lo, &second->lo);
  split_exponent(magic.hi, &first->hi, &second->hi);
}

#else

struct Lanes {
  float v[kLanes];

  /// Lane i: value(i).
  template <class F>
  static Lanes each(const F& value) {
    Lanes r;
    for (int i = 0; i < kLanes; ++i)
      r.v[i] = value(i);
    return r;
  }
  static Lanes set(float x) {
    return each([&](int) { return x; });
  }
  static Lanes load(const float* p) {
    return each([&](int i) { return p[i]; });
  }
  static Lanes broadcast(const float* p) { return set(*p); }
  static Lanes broadcast_halves(const float* p) {
    return each([&](int i) { return p[i / (kLanes / 2)]; });
  }
  static Lanes load_bf16(const uint16_t* p) {
    return each([&](int i) { return bf16_to_f32(p[i]); });
  }
  static Lanes load_f16(const uint16_t* p) {
    return each([&](int i) { return f16_to_f32(p[i]); });
  }
  void store(float* p) const { std::memcpy(p, v, sizeof v); }
};

#define MINFER_LANEWISE(signature, expression) \
  inline Lanes signature {                     \
    Lanes r;                                   \
    for (int i = 0; i < kLanes; ++i)           \
      r.v[i] = (expression);                   \
    return r;                                  \
  }
MINFER_LANEWISE(operator+(Lanes a, Lanes b), a.v[i] + b.v[i])
MINFER_LANEWISE(operator-(Lanes a, Lanes b), a.v[i] - b.v[i])
MINFER_LANEWISE(operator*(Lanes a, Lanes b), a.v[i] * b.v[i])
MINFER_LANEWISE(operator/(Lanes a, Lanes b), a.v[i] / b.v[i])
MINFER_LANEWISE(fma(Lanes a, Lanes b, Lanes c), std::fma(a.v[i], b.v[i], c.v[i]))
MINFER_LANEWISE(max(Lanes a, Lanes b), a.v[i] > b.v[i] ? a.v[i] : b.v[i])
MINFER_LANEWISE(min(Lanes a, Lanes b), a.v[i] < b.v[i] ? a.v[i] : b.v[i])
#undef MINFER_LANEWISE

inline void split_exponent(Lanes magic, Lanes* first, Lanes* second) {
  for (int i = 0; i < kLanes; ++i) {
    // Unsigned, so that the garbage which NaN leaves here wraps instead of overflowing.
    const uint32_t n = std::bit_cast<uint32_t>(magic.v[i]) - 0x4b400000u;
    const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(n) >> 1);
    first->v[i] = std::bit_cast<float>((half + 127u) << 23);
    second->v[i] = std::bit_cast<float>((n - half + 127u) << 23);
  }
}

#endif

#if defined(__AVX2__)
MINFER_LANEWISE(operator+, add_ps)
MINFER_LANEWISE(operator-, sub_ps)
MINFER_LANEWISE(operator*, mul_ps)
MINFER_LANEWISE(operator/, div_ps)
MINFER_LANEWISE(max, max_ps)  // a > b ? a : b, so b if either is NaN
MINFER_LANEWISE(min, min_ps)  // a < b ? a : b, so b if either is NaN
#undef MINFER_LANEWISE
#endif

/// Sum of the lanes in a fixed tree: halves are added lane by lane, 16 -> 8 -> 4 -> 2 -> 1.
inline float reduce_add(Lanes a) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
#else
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
#endif
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i)
      a.v[i] += a.v[i + width];
  }
  return a.v[0];
#endif
}

/// Largest lane. The caller avoids NaN lanes.
inline float reduce_max(Lanes a) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
#else
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
#endif
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
#else
  float largest = a.v[0];
  for (int i = 1; i < kLanes; ++i)
    largest = a.v[i] > largest ? a.v[i] : largest;
  return largest;
#endif
}

/// The first `count` elements of sixteen, with zeros behind them; `count` may be below 1 or more than there are lanes.
inline Lanes load_some(const float* p, int64_t count) {
  if (count >= kLanes) return Lanes::load(p);
  float lanes[kLanes] = {};
  if (count > 0) std::memcpy(lanes, p, static_cast<size_t>(count) * sizeof(float));
  return Lanes::load(lanes);
}

inline void store_some(Lanes a, float* p, int64_t count) {
  if (count >= kLanes) return a.store(p);
  float lanes[kLanes];
  a.store(lanes);
  if (count > 0) std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(float));
}

/// body(i) for i = 0 ... count - 1. With vector registers the loop is unrolled, and i converts to a constant expression.
template <int count, class Body>
MINFER_ALWAYS_INLINE inline void unroll(Body&& body) {
#if defined(__AVX2__)
  [&]<int... i>(std::integer_sequence<int, i...>) MINFER_ALWAYS_INLINE {
    (body(std::integral_constant<int, i>()), ...);
  }
  (std::make_integer_sequence<int, count>());
#else
  for (int i = 0; i < count; ++i)
    body(i);
#endif
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
