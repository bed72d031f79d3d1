#pragma once

#include "kernels/cpu/unroll.h"

// The register tile of the products: kTileRows weight rows x up to kTileTokens tokens, each sum in sixteen
// lanes. The shape keeps the sums in registers and has enough of them in flight to hide the latency of the
// multiply-adds (4 cycles, two a cycle): AVX-512 24 of 32 registers, AVX2 12 of 16.
namespace minfer::cpu {
inline namespace MINFER_ISA {

inline constexpr int64_t kCacheLine = 64;

#if defined(__AVX512F__)
inline constexpr int kTileRows = 4;
inline constexpr int kTileTokens = 6;
#else
inline constexpr int kTileRows = 2;
inline constexpr int kTileTokens = 3;
#endif

#if defined(__AVX512F__)

/// The pairwise halves of the reduction tree for two vectors at once: 128-bit pieces (p0, p1, p2, p3) become
/// pieces (p0 + p2, p1 + p3) of a, then of b.
inline __m512 fold_to_eight(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/// The four tokens' sums over lanes j, j + 4, j + 8, j + 12, a 128-bit piece each.
inline __m512 fold_to_four(const __m512 (&tokens)[4]) {
  const __m512 ab = fold_to_eight(tokens[0], tokens[1]);
  const __m512 cd = fold_to_eight(tokens[2], tokens[3]);
  return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

/// Sixteen reduce_add at once, bit for bit: lane 4 t + r is the sum of rows[r][t].
inline __m512 fold_rows(const __m512 (&rows)[4]) {
  const __m512 first =
      _mm512_add_ps(_mm512_shuffle_ps(rows[0], rows[1], 0x44), _mm512_shuffle_ps(rows[0], rows[1], 0xee));
  const __m512 second =
      _mm512_add_ps(_mm512_shuffle_ps(rows[2], rows[3], 0x44), _mm512_shuffle_ps(rows[2], rows[3], 0xee));
  return _mm512_add_ps(_mm512_shuffle_ps(first, second, 0x88), _mm512_shuffle_ps(first, second, 0xdd));
}

/// Stores or adds the folded sums of a tile: sums[t * stride + r] of acc[r][t].
template <int tokens>
MINFER_ALWAYS_INLINE inline void fold_tile(const Lanes (&acc)[kTileRows][tokens], bool add, float* sums,
                                           int64_t stride) {
  unroll<(tokens + 3) / 4>([&](auto group) MINFER_ALWAYS_INLINE {
    constexpr int kFirst = 4 * group;
    constexpr int kCount = tokens - kFirst < 4 ? tokens - kFirst : 4;
    __m512 rows[kTileRows];
    unroll<kTileRows>([&](auto r) MINFER_ALWAYS_INLINE {
      const auto& row = acc[r];
      // Places without a token repeat the first; the compiler drops what that repeats.
      rows[r] = fold_to_four({row[kFirst].v, row[kFirst + (1 < kCount ? 1 : 0)].v,
                              row[kFirst + (2 < kCount ? 2 : 0)].v, row[kFirst + (3 < kCount ? 3 : 0)].v});
    });
    const __m512 folded = fold_rows(rows);
    unroll<kCount>([&](auto t) MINFER_ALWAYS_INLINE {
      const __m128 token = _mm512_extractf32x4_ps(folded, t);
      float* out = sums + (kFirst + t) * stride;
      _mm_storeu_ps(out, add ? _mm_add_ps(_mm_loadu_ps(out), token) : token);
    });
  });
}

#else

template <int tokens>
inline void fold_tile(const Lanes (&acc)[kTileRows][tokens], bool add, float* sums, int64_t stride) {
  unroll<kTileRows>([&](auto r) MINFER_ALWAYS_INLINE {
    unroll<tokens>([&](auto t) MINFER_ALWAYS_INLINE {
      const float sum = reduce_add(acc[r][t]);
      float& out = sums[t * stride + r];
      out = add ? out + sum : sum;
    });
  });
}

#endif

/// One tile over `steps` steps of 16 columns: panel [steps, kTileRows, 16], x [steps, tokens, 16]. Meanwhile
/// fetches the `steps` cache lines from `next`: memory would be idle otherwise.
template <int tokens>
void multiply_tile(const float* panel, const float* x, int64_t steps, bool add, float* sums, int64_t stride,
                   const char* next) {
  Lanes acc[kTileRows][tokens];
  unroll<kTileRows>([&](auto r) MINFER_ALWAYS_INLINE {
    unroll<tokens>([&](auto t) MINFER_ALWAYS_INLINE { acc[r][t] = Lanes::set(0.0f); });
  });
#pragma GCC unroll 2
  for (int64_t step = 0; step < steps; ++step) {
    Lanes w[kTileRows];
    unroll<kTileRows>([&](auto r) MINFER_ALWAYS_INLINE { w[r] = Lanes::load(panel + r * kLanes); });
    unroll<tokens>([&](auto t) MINFER_ALWAYS_INLINE {
      const Lanes xt = Lanes::load(x + t * kLanes);
      unroll<kTileRows>([&](auto r) MINFER_ALWAYS_INLINE { acc[r][t] = fma(w[r], xt, acc[r][t]); });
    });
    __builtin_prefetch(next);
    next += kCacheLine;
    panel += kTileRows * kLanes;
    x += tokens * kLanes;
  }
  fold_tile(acc, add, sums, stride);
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
