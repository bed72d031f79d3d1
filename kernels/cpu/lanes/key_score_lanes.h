#pragma once

#include "kernels/cpu/lanes/attention_lanes.h"

// Scores by which keys are chosen (ChooseKeysArgs), with the products of attention_lanes.h:
//   score[j] = sum over h ascending of weights[h] * max(s[h, j], 0)      sixteen positions in the lanes
// A score depends on its query and its key alone.
namespace minfer::cpu {
inline namespace MINFER_ISA {

/// Adds the heads of `tile` to the scores of keys [first, first + count), which are 0 in front of the first head.
inline void score_key_tile(const AttentionTile& tile, AttentionState& s, const float* weights, int first,
                           int count, bool is_first_head, float* scores) {
  const int groups = (count + kLanes - 1) / kLanes;
  find_rows(tile, s, {tile.kv->k, s.head_size}, first, {0, count});
  for (int g = 0; g < groups; ++g)
    transpose_keys(s.tile_rows + g * kLanes, s.padded, s.keys + g * s.padded * kLanes);
  score_rows<kScoreRows>(s, 0, s.rows, groups);
  for (int g = 0; g < groups; ++g) {
    const int rest = count - g * kLanes;
    Lanes sum = is_first_head ? Lanes::set(0.0f) : load_some(scores + g * kLanes, rest);
    for (int row = 0; row < s.rows; ++row) {
      const Lanes product = Lanes::load(s.scores + row * kKeyTile + g * kLanes);
      sum = fma(Lanes::set(weights[row]), max(product, Lanes::set(0.0f)), sum);
    }
    store_some(sum, scores + g * kLanes, rest);
  }
}

inline void score_keys(const KeyScoreTile& tile) {
  AttentionTile query = tile.query;
  query.tokens = 1;
  for (int head = 0; head < tile.heads; head += kQueryTileRows) {
    query.q = tile.query.q + int64_t{head} * query.kv->head_size;
    query.group = tile.heads - head < kQueryTileRows ? tile.heads - head : kQueryTileRows;
    AttentionState s = lay_out(query);
    start_rows(query, s);
    for (int first = tile.begin; first < tile.end; first += kKeyTile) {
      const int count = tile.end - first < kKeyTile ? tile.end - first : kKeyTile;
      score_key_tile(query, s, tile.weights + head, first, count, head == 0,
                     tile.scores + (first - tile.begin));
    }
  }
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
