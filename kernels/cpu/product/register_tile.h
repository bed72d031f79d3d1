#pragma once

#include <cstddef>

#include "kernels/cpu/lanes/lanes.h"

// The register tile of the products: kTileRows weight rows x up to kTileTokens tokens, each sum in sixteen
// lanes. The shape keeps the sums in registers and has enough of them in flight to hide the latency of the
// multiply-adds (4 cycles, two a cycle): 24 of 32 registers with AVX-512, 12 of 16 with AVX2. There are
// more rows than tokens, because rows come from the first-level cache and tokens from the second.
namespace minfer::cpu {
inline namespace MINFER_ISA {

#if defined(__AVX512F__)
inline constexpr int kTileRows = 6;
inline constexpr int kTileTokens = 4;
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
inline __m512 fold_to_four(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = fold_to_eight(a, b);
  const __m512 cd = fold_to_eight(c, d);
  return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

/// The last halves of the tree for four rows of fold_to_four: lane 4 t + i is the whole sum of row i and
/// token t.
inline __m512 fold_rows(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  const __m512 cd = _mm512_add_ps(_mm512_shuffle_ps(c, d, 0x44), _mm512_shuffle_ps(c, d, 0xee));
  return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x88), _mm512_shuffle_ps(ab, cd, 0xdd));
}

/// Stores or adds the folded sums of a tile, as reduce_add gives them: sums[t * stride + r] of acc[r][t].
template <int tokens>
MINFER_ALWAYS_INLINE inline void fold_tile(const Lanes (&acc)[kTileRows][tokens], bool add, float* sums,
                                           int64_t stride) {
  static_assert(kTileRows == 6 && tokens <= 4);
  __m512 rows[kTileRows];
  unroll<kTileRows>([&](auto r) MINFER_ALWAYS_INLINE {
    // Places without a token repeat the first; the compiler drops the repeated work.
    rows[r] = fold_to_four(acc[r][0].v, acc[r][1 < tokens ? 1 : 0].v, acc[r][2 < tokens ? 2 : 0].v,
                           acc[r][3 < tokens ? 3 : 0].v);
  });
  const __m512 first = fold_rows(rows[0], rows[1], rows[2], rows[3]);
  const __m512 last = fold_rows(rows[4], rows[5], rows[4], rows[5]);
  unroll<tokens>([&](auto t) MINFER_ALWAYS_INLINE {
    float* out = sums + t * stride;
    __m128 four = _mm512_extractf32x4_ps(first, t);
    __m128 two = _mm512_extractf32x4_ps(last, t);
    if (add) {
      four = _mm_add_ps(_mm_loadu_ps(out), four);
      two = _mm_add_ps(_mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(out + 4))), two);
    }
    _mm_storeu_ps(out, four);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 4), _mm_castps_si128(two));
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

/// acc[r][t] += panel row r * token t in one step of 16 columns: panel [kTileRows, 16], x [tokens, 16].
template <int tokens>
MINFER_ALWAYS_INLINE inline void multiply_step(const float* panel, const float* x,
                                               Lanes (&acc)[kTileRows][tokens]) {
  Lanes w[kTileRows];
  unroll<kTileRows>([&](auto r) MINFER_ALWAYS_INLINE { w[r] = Lanes::load(panel + r * kLanes); });
  unroll<tokens>([&](auto t) MINFER_ALWAYS_INLINE {
    const Lanes xt = Lanes::load(x + t * kLanes);
    unroll<kTileRows>([&](auto r) MINFER_ALWAYS_INLINE { acc[r][t] = fma(w[r], xt, acc[r][t]); });
  });
}

/// One tile over `steps` steps, which are contiguous in `panel` and `x`. Meanwhile it fetches `steps` cache
/// lines from `next` on into the second-level cache: memory would be idle otherwise.
template <int tokens>
void multiply_tile(const float* panel, const float* x, int64_t steps, bool add, float* sums, int64_t stride,
                   const std::byte* next) {
  Lanes acc[kTileRows][tokens];
  unroll<kTileRows>([&](auto r) MINFER_ALWAYS_INLINE {
    unroll<tokens>([&](auto t) MINFER_ALWAYS_INLINE { acc[r][t] = Lanes::set(0.0f); });
  });
  for (int64_t step = 0; step < steps; ++step) {
    multiply_step(panel, x, acc);
    __builtin_prefetch(next, 0, 2);
    panel += kTileRows * kLanes;
    x += tokens * kLanes;
    next += kCacheLine;
  }
  fold_tile(acc, add, sums, stride);
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
