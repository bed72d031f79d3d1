#pragma once

#include "kernels/cpu/lanes/cache_rows.h"
#include "kernels/cpu/lanes/lane_kernels.h"
#include "kernels/cpu/lanes/vector_math.h"

// Attention of one tile of rows (query token times query head) that read the same KV head, in Lanes.
//
// For each key tile of 64 positions, counted from position 0 of the sequence (Milakov & Gimelshein 2018; Dao
// et al. 2022), or of 64 chosen keys, counted from the first of them:
//   scores  s[j] = sum over d ascending of (q[d] * scale) * k[j][d]          sixteen positions in the lanes
//   weights m' = max(m, s), c = e^(m - m'), w[j] = e^(s[j] - m')             running maximum m
//   sums    l[lane] = l[lane] * c + w of the lane's positions in order
//           acc[d] = acc[d] * c + sum over j of w[j] * v[j][d]
// and at the end out[d] = acc[d] / (l folded 8, 4, 2, 1). Masked positions take no part at all, nor do key tiles in which a row
// sees no key. A cap is put on s before all else; a sink is m at the start, with 1 in the first lane of l. So a row's result
// depends only on its query and on the keys that it sees: not on the other rows, the block size or where the blocks lie.
namespace minfer::cpu {
inline namespace MINFER_ISA {

// Register tiles: rows x lane groups that stay in registers, chosen so that the accumulators fill half of
// them.
#if defined(__AVX512F__)
inline constexpr int kScoreRows = 8;
inline constexpr int kScoreGroups = 2;
inline constexpr int kScoreGroupsOfFewRows = 4;  // multiply-adds that do not wait for each other
inline constexpr int kSumRows = 4;
inline constexpr int kSumChunks = 4;
#else
inline constexpr int kScoreRows = 4;
inline constexpr int kScoreGroups = 1;
inline constexpr int kScoreGroupsOfFewRows = 2;
inline constexpr int kSumRows = 2;
inline constexpr int kSumChunks = 2;
#endif

inline constexpr float kMasked = -__builtin_inff();

/// A tile's scratch memory, and the values that stay the same for all key tiles.
struct AttentionState {
  int head_size;
  int padded;          ///< head_size rounded up to whole lanes: the row stride of q
  int value_size;      ///< of V's rows and the results
  int value_padded;    ///< value_size rounded up: the row stride of acc
  int rows;            ///< tokens * group, row = token * group + head
  float* q;            ///< [rows, padded] scaled
  float* keys;         ///< [kKeyTile / 16, padded, 16] the key tile, transposed
  float* widened;      ///< [kKeyTile, padded or value_padded] f32 copies of rows that cannot be read in place
  float* scores;       ///< [rows, kKeyTile] scores, then weights
  float* acc;          ///< [rows, value_padded]
  float* sums;         ///< [rows, 16]
  float* maxima;       ///< [rows]
  float* corrections;  ///< [rows, 16] c of the current key tile, the same in all lanes
  const float*
      tile_rows[kKeyTile];  ///< f32 rows of the key tile, K first, then V, if they are not those of K
};

/// Keys of a tile that a row sees. Both ends ascend from row to row.
struct SeenKeys {
  int begin;
  int end;
};

inline AttentionState lay_out(const AttentionTile& tile) {
  AttentionState s;
  s.head_size = tile.kv->head_size;
  s.padded = whole_lanes(s.head_size);
  s.value_size = tile.kv->value_size();
  s.value_padded = whole_lanes(s.value_size);
  s.rows = tile.tokens * tile.group;
  float* next = tile.scratch;
  const auto take = [&next](int64_t floats) {
    float* piece = next;
    next += floats;
    return piece;
  };
  s.q = take(int64_t{s.rows} * s.padded);
  s.keys = take(int64_t{kKeyTile} * s.padded);
  s.widened = take(int64_t{kKeyTile} * (s.padded > s.value_padded ? s.padded : s.value_padded));
  s.scores = take(int64_t{s.rows} * kKeyTile);
  s.acc = take(int64_t{s.rows} * s.value_padded);
  s.sums = take(int64_t{s.rows} * kLanes);
  s.corrections = take(int64_t{s.rows} * kLanes);
  s.maxima = take(s.rows);
  return s;
}

inline void start_rows(const AttentionTile& tile, const AttentionState& s) {
  for (int row = 0; row < s.rows; ++row) {
    const float* q = tile.q + row / tile.group * tile.q_stride + int64_t{row % tile.group} * s.head_size;
    for (int d = 0; d < s.head_size; ++d)
      s.q[row * s.padded + d] = q[d] * tile.scale;
    s.maxima[row] = tile.sinks != nullptr ? tile.sinks[row % tile.group] : kMasked;
    for (int d = 0; d < s.value_padded; ++d)
      s.acc[row * s.value_padded + d] = 0.0f;
    for (int lane = 0; lane < kLanes; ++lane)
      s.sums[row * kLanes + lane] = 0.0f;
    if (tile.sinks != nullptr) s.sums[row * kLanes] = 1.0f;
  }
}

/// Points tile_rows [seen.begin, seen.end) at positions from first + seen.begin on: into the cache if its rows are whole
/// lanes of f32, else at widened copies. Entries before them, and up to the next whole lane group, repeat a row; results
/// from these entries are masked.
inline void find_rows(const AttentionTile& tile, AttentionState& s, CacheRows cache, int first,
                      SeenKeys seen) {
  const DType dtype = tile.kv->dtype;
  const int size = cache.size, padded = whole_lanes(size);
  const bool in_place = dtype == DType::f32 && padded == size;
  RowWalk walk(tile, cache, tile.chosen == nullptr ? first + seen.begin : 0);
  for (int j = seen.begin; j < seen.end; ++j) {
    const char* row = tile.chosen == nullptr ? walk.next() : walk.at(tile.chosen[first + j]);
    if (in_place) {
      s.tile_rows[j] = reinterpret_cast<const float*>(row);
    } else {
      float* copy = s.widened + j * padded;
      widen_row(row, dtype, size, copy);
      s.tile_rows[j] = copy;
    }
  }
  for (int j = 0; j < seen.begin; ++j)
    s.tile_rows[j] = s.tile_rows[seen.begin];
  for (int j = seen.end; j % kLanes != 0; ++j)
    s.tile_rows[j] = s.tile_rows[seen.begin];
}

#if defined(__AVX512F__)
/// Elements d to d + 3 of rows j, j + 4, j + 8 and j + 12. The loads put them in place, so that the shuffles, which are scarce,
/// need only transpose within.
inline __m512 every_fourth_row(const float* const* rows, int j, int d) {
  __m512 all = _mm512_castps128_ps512(_mm_loadu_ps(rows[j] + d));
  all = _mm512_insertf32x4(all, _mm_loadu_ps(rows[j + 4] + d), 1);
  all = _mm512_insertf32x4(all, _mm_loadu_ps(rows[j + 8] + d), 2);
  return _mm512_insertf32x4(all, _mm_loadu_ps(rows[j + 12] + d), 3);
}
#endif

/// keys[d][j] = rows[j][d] for sixteen rows.
inline void transpose_keys(const float* const* rows, int padded, float* keys) {
#if defined(__AVX512F__)
  for (int d = 0; d < padded; d += 4) {
    const __m512 a = every_fourth_row(rows, 0, d);
    const __m512 b = every_fourth_row(rows, 1, d);
    const __m512 c = every_fourth_row(rows, 2, d);
    const __m512 e = every_fourth_row(rows, 3, d);
    const __m512 low_ab = _mm512_unpacklo_ps(a, b), high_ab = _mm512_unpackhi_ps(a, b);
    const __m512 low_ce = _mm512_unpacklo_ps(c, e), high_ce = _mm512_unpackhi_ps(c, e);
    float* out = keys + d * kLanes;
    _mm512_storeu_ps(out, _mm512_shuffle_ps(low_ab, low_ce, 0x44));
    _mm512_storeu_ps(out + kLanes, _mm512_shuffle_ps(low_ab, low_ce, 0xee));
    _mm512_storeu_ps(out + 2 * kLanes, _mm512_shuffle_ps(high_ab, high_ce, 0x44));
    _mm512_storeu_ps(out + 3 * kLanes, _mm512_shuffle_ps(high_ab, high_ce, 0xee));
  }
#else
  for (int j = 0; j < kLanes; j += 4) {
    for (int d = 0; d < padded; d += 4) {
#if defined(__AVX2__)
      __m128 a = _mm_loadu_ps(rows[j] + d);
      __m128 b = _mm_loadu_ps(rows[j + 1] + d);
      __m128 c = _mm_loadu_ps(rows[j + 2] + d);
      __m128 e = _mm_loadu_ps(rows[j + 3] + d);
      _MM_TRANSPOSE4_PS(a, b, c, e);
      float* out = keys + d * kLanes + j;
      _mm_storeu_ps(out, a);
      _mm_storeu_ps(out + kLanes, b);
      _mm_storeu_ps(out + 2 * kLanes, c);
      _mm_storeu_ps(out + 3 * kLanes, e);
#else
      for (int i = 0; i < 16; ++i)
        keys[(d + i / 4) * kLanes + j + i % 4] = rows[j + i % 4][d + i / 4];
#endif
    }
  }
#endif
}

template <int R, int G>
inline void score_tile(const AttentionState& s, int row, int group) {
  Lanes acc[R][G];
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g)
      acc[r][g] = Lanes::set(0.0f);
  }
  const float* q = s.q + row * s.padded;
  const float* keys = s.keys + group * s.padded * kLanes;
  for (int d = 0; d < s.head_size; ++d) {
    Lanes k[G];
    for (int g = 0; g < G; ++g)
      k[g] = Lanes::load(keys + (g * s.padded + d) * kLanes);
    for (int r = 0; r < R; ++r) {
      const Lanes broadcast = Lanes::set(q[r * s.padded + d]);
      for (int g = 0; g < G; ++g)
        acc[r][g] = fma(broadcast, k[g], acc[r][g]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g)
      acc[r][g].store(s.scores + (row + r) * kKeyTile + (group + g) * kLanes);
  }
}

/// Scores of rows [row, end) with `groups` lane groups of keys, in register tiles of R rows; the rest in
/// smaller tiles.
template <int R>
inline void score_rows(const AttentionState& s, int row, int end, int groups) {
  constexpr int kGroups = R <= 2 ? kScoreGroupsOfFewRows : kScoreGroups;
  for (; row + R <= end; row += R) {
    int group = 0;
    for (; group + kGroups <= groups; group += kGroups)
      score_tile<R, kGroups>(s, row, group);
    for (; group < groups; ++group)
      score_tile<R, 1>(s, row, group);
  }
  if constexpr (R > 1) score_rows<R / 2>(s, row, end, groups);
}

/// Caps the scores of rows [row, end) with `groups` lane groups of keys.
inline void cap_rows(const AttentionState& s, int row, int end, int groups, float cap) {
  for (; row < end; ++row) {
    float* scores = s.scores + row * kKeyTile;
    for (int g = 0; g < groups; ++g)
      soft_cap(Lanes::load(scores + g * kLanes), cap).store(scores + g * kLanes);
  }
}

/// Turns a row's scores of the keys that it sees (at least one) into weights, and updates its maximum, sums and correction.
inline void weigh_row(const AttentionState& s, int row, SeenKeys seen) {
  float* scores = s.scores + row * kKeyTile;
  const int first_group = seen.begin / kLanes;
  const int groups = (seen.end + kLanes - 1) / kLanes;
  for (int j = first_group * kLanes; j < seen.begin; ++j)
    scores[j] = kMasked;
  for (int j = seen.end; j < groups * kLanes; ++j)
    scores[j] = kMasked;
  Lanes largest = Lanes::set(kMasked);
  for (int g = first_group; g < groups; ++g)
    largest = max(Lanes::load(scores + g * kLanes), largest);
  const float tile_maximum = reduce_max(largest);
  const float maximum = tile_maximum > s.maxima[row] ? tile_maximum : s.maxima[row];
  const Lanes shift = Lanes::set(maximum);
  const Lanes correction = exp(Lanes::set(s.maxima[row]) - shift);
  correction.store(s.corrections + row * kLanes);
  s.maxima[row] = maximum;
  Lanes sums = Lanes::load(s.sums + row * kLanes) * correction;
  for (int g = first_group; g < groups; ++g) {
    const Lanes weights = exp(Lanes::load(scores + g * kLanes) - shift);
    weights.store(scores + g * kLanes);
    sums = sums + weights;
  }
  sums.store(s.sums + row * kLanes);
}

/// acc of R rows and C chunks of sixteen elements. Keys that all rows see are added for all rows together, those before and
/// behind them row by row: each row sums in the order of its keys. kSameBegin: the first key is the same for all rows.
template <int R, int C, bool kSameBegin>
inline void sum_tile(const AttentionState& s, int row, int chunk, const SeenKeys* seen) {
  Lanes acc[R][C];
  float* out = s.acc + row * s.value_padded + chunk * kLanes;
  for (int r = 0; r < R; ++r) {
    const Lanes correction = Lanes::load(s.corrections + (row + r) * kLanes);
    for (int c = 0; c < C; ++c)
      acc[r][c] = Lanes::load(out + r * s.value_padded + c * kLanes) * correction;
  }
  const float* weights = s.scores + row * kKeyTile;
  const auto add = [&](int r, int begin, int end) {
    for (int j = begin; j < end; ++j) {
      const Lanes broadcast = Lanes::set(weights[r * kKeyTile + j]);
      for (int c = 0; c < C; ++c) {
        acc[r][c] = fma(broadcast, Lanes::load(s.tile_rows[j] + (chunk + c) * kLanes), acc[r][c]);
      }
    }
  };
  const int first_of_all = seen[R - 1].begin;
  const int end_of_all = seen[0].end > first_of_all ? seen[0].end : first_of_all;
  if constexpr (!kSameBegin) {
    for (int r = 0; r < R; ++r)
      add(r, seen[r].begin, seen[r].end < first_of_all ? seen[r].end : first_of_all);
  }
  for (int j = first_of_all; j < end_of_all; ++j) {
    Lanes v[C];
    for (int c = 0; c < C; ++c)
      v[c] = Lanes::load(s.tile_rows[j] + (chunk + c) * kLanes);
    for (int r = 0; r < R; ++r) {
      const Lanes broadcast = Lanes::set(weights[r * kKeyTile + j]);
      for (int c = 0; c < C; ++c)
        acc[r][c] = fma(broadcast, v[c], acc[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    add(r, end_of_all, seen[r].end);
    for (int c = 0; c < C; ++c)
      acc[r][c].store(out + r * s.value_padded + c * kLanes);
  }
}

/// Adds the weighted values to rows [row, end), which see keys `seen` of the tile.
template <int R, bool kSameBegin>
inline void sum_rows(const AttentionState& s, int row, int end, const SeenKeys* seen) {
  const int chunks = s.value_padded / kLanes;
  for (; row + R <= end; row += R) {
    int chunk = 0;
    for (; chunk + kSumChunks <= chunks; chunk += kSumChunks)
      sum_tile<R, kSumChunks, kSameBegin>(s, row, chunk, seen + row);
    for (; chunk < chunks; ++chunk)
      sum_tile<R, 1, kSameBegin>(s, row, chunk, seen + row);
  }
  if constexpr (R > 1) sum_rows<R / 2, kSameBegin>(s, row, end, seen);
}

inline void finish_rows(const AttentionTile& tile, const AttentionState& s) {
  for (int row = 0; row < s.rows; ++row) {
    float* out = tile.out + row / tile.group * tile.out_stride + int64_t{row % tile.group} * s.value_size;
    const Lanes total = Lanes::set(reduce_add(Lanes::load(s.sums + row * kLanes)));
    for (int d = 0; d < s.value_size; d += kLanes) {
      store_some(Lanes::load(s.acc + row * s.value_padded + d) / total, out + d, s.value_size - d);
    }
  }
}

/// Finds the keys of [first, first + count) that each row sees. Returns the rows that see any; they follow each other.
inline SeenKeys see_tile(const AttentionTile& tile, int rows, int first, int count, SeenKeys* seen) {
  SeenKeys taking_part{0, rows};
  for (int row = 0; row < rows; ++row) {
    const int position = tile.chosen != nullptr ? tile.num_chosen - 1 : tile.positions[row / tile.group];
    const int begin = tile.window.first_seen(position) - first, end = position + 1 - first;
    seen[row] = {begin > 0 ? begin : 0, end < count ? end : count};
    if (end <= 0) taking_part.begin = row + 1;
    if (begin >= count && taking_part.end > row) taking_part.end = row;
  }
  return taking_part;
}

inline void attend(const AttentionTile& tile) {
  AttentionState s = lay_out(tile);
  start_rows(tile, s);
  const int keys = tile.chosen != nullptr ? tile.num_chosen : tile.positions[tile.tokens - 1] + 1;
  const int begin = tile.window.first_seen(tile.positions[0]);
  SeenKeys seen[kQueryTileRows];
  for (int first = begin / kKeyTile * kKeyTile; first < keys; first += kKeyTile) {
    const int count = keys - first < kKeyTile ? keys - first : kKeyTile;
    const SeenKeys of_any{begin > first ? begin - first : 0, count};
    const SeenKeys rows = see_tile(tile, s.rows, first, count, seen);
    if (rows.begin >= rows.end) continue;
    const int groups = (count + kLanes - 1) / kLanes;
    find_rows(tile, s, {tile.kv->k, s.head_size}, first, of_any);
    for (int g = 0; g < groups; ++g) {
      transpose_keys(s.tile_rows + g * kLanes, s.padded, s.keys + g * s.padded * kLanes);
    }
    score_rows<kScoreRows>(s, rows.begin, rows.end, groups);
    if (tile.logit_cap > 0.0f) cap_rows(s, rows.begin, rows.end, groups, tile.logit_cap);
    for (int row = rows.begin; row < rows.end; ++row)
      weigh_row(s, row, seen[row]);
    if (!tile.kv->v_in_k) find_rows(tile, s, {tile.kv->v, s.value_size}, first, of_any);
    if (seen[rows.begin].begin == seen[rows.end - 1].begin) {
      sum_rows<kSumRows, true>(s, rows.begin, rows.end, seen);
    } else {
      sum_rows<kSumRows, false>(s, rows.begin, rows.end, seen);
    }
  }
  finish_rows(tile, s);
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
