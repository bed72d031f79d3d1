#pragma once

#include "kernels/cuda/delta/delta_rule_group.cuh"

// The delta rule with a decay for each row of a state (Kimi Team 2025, "Kimi Linear", arXiv:2510.26692), with A = diag(a):
//
//   S = A S,  u = b (v - S^T k),  out = S^T q + (k . q) u,  S = S + k u^T
//
// Tokens follow each other one at a time, in f32. Decays between the tokens of a group or a chunk differ by row, so the factors of
// delta_rule_group.cuh and delta_rule_chunk.cuh do not exist. FLOPs: 7 for each element of the state and token, as with one decay.
//
//   one token     as in delta_rule.cu; the block makes the decays of all rows once, in shared memory
//   many tokens   tiles of kRowTokens tokens: each warp takes its eight columns, token after token without a barrier, while the next tile
//                 is copied; then all threads make the decays of that one.
namespace minfer::cuda {

inline constexpr int kRowTokens = 8;

/// q, k, v and gates of some tokens.
template <int kQuads>
struct RowsTile {
  static constexpr int kKeys = RuleTile<kQuads>::kKeys;
  alignas(16) float q[kRowTokens][kKeys];
  alignas(16) float k[kRowTokens][kKeys];
  alignas(16) float v[kRowTokens][kRuleColumns];
  alignas(16) float decays[kRowTokens][kKeys];  ///< behind key_size: 1
  float strength[kRowTokens];
};

/// Starts the copy of tokens [first, first + count) of the step; decays are alphas until make_decays(). Gives beta of the thread's token.
template <int kQuads, bool kAligned>
__device__ float stage_rows(const RuleParams& p, const RuleBlock& block, int64_t first, int32_t count,
                            RowsTile<kQuads>& tile) {
  constexpr int32_t kKeys = RowsTile<kQuads>::kKeys;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t t = thread / kWarpSize; t < count; t += kRuleWarps) {
    stage_row<kAligned>(tile.q[t], block.q(p, first + t), p.key_size, kKeys, true);
    stage_row<kAligned>(tile.k[t], block.k(p, first + t), p.key_size, kKeys, true);
    stage_row<kAligned>(tile.v[t], block.v(p, first + t), block.columns(p), kRuleColumns, true);
    stage_row<kAligned>(tile.decays[t], block.alphas(p, first + t), p.key_size, kKeys, true);
  }
  commit_copies();
  return thread < count ? beta_of_rows(p, block.head, first + thread) : 0.0f;
}

/// Waits for a tile's copies and makes its gates. All threads call it; afterwards all of them see the tile.
template <int kQuads>
__device__ void make_gates(const RuleParams& p, const RuleBlock& block, int32_t count, float beta,
                           RowsTile<kQuads>& tile) {
  constexpr int32_t kKeys = RowsTile<kQuads>::kKeys;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  wait_for_copies<0>();
  __syncthreads();
#pragma unroll
  for (int32_t n = 0; n < kRowTokens * kKeys / kRuleThreads; ++n) {
    const int32_t i = n * kRuleThreads + thread, t = i / kKeys, row = i % kKeys;
    if (t >= count) break;
    float& decay = tile.decays[t][row];
    decay = row < p.key_size ? decay_of_row(p, block.head, decay, row) : 1.0f;
  }
  if (thread < count) tile.strength[thread] = sigmoid(beta);
  __syncthreads();
}

/// A token's step by a warp, for its eight columns. Lanes with the same lowest bit have the same four columns; after the sums a lane has
/// `out` of column lane / 8 of these.
template <int kQuads>
__device__ __forceinline__ float row_step(const RowsTile<kQuads>& tile, int32_t token,
                                          const RuleThread& place, RuleState<kQuads>& state) {
  constexpr int kRows = 4 * kQuads, kKeys = RowsTile<kQuads>::kKeys;
  float decays[kRows], k[kRows], q[kRows];
  load_rows<kQuads, true>(tile.decays[token], kKeys, place, decays);
  load_rows<kQuads, true>(tile.k[token], kKeys, place, k);
  load_rows<kQuads, true>(tile.q[token], kKeys, place, q);
  state.scale(decays);
  float dot = 0.0f;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    dot = fmaf(k[r], q[r], dot);
  const float4 of_k = state.product(k), of_q = state.product(q);
  // Sums over the 16 lanes with the same columns: first over those that differ in bits 4 and 3, by which a lane keeps one column.
  const float answers[4] = {of_k.x, of_k.y, of_k.z, of_k.w}, values[4] = {of_q.x, of_q.y, of_q.z, of_q.w};
  float answer = scattered_sum<4, 16>(answers), value = scattered_sum<4, 16>(values);
#pragma unroll
  for (int distance = 2; distance <= 16; distance *= 2)
    dot += __shfl_xor_sync(kWholeWarp, dot, distance);
#pragma unroll
  for (int distance = 2; distance <= 4; distance *= 2) {
    answer += __shfl_xor_sync(kWholeWarp, answer, distance);
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  }
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize, own_column = place.column + lane / 8;
  const float update = tile.strength[token] * (tile.v[token][own_column] - answer);
  const int32_t from = lane & 1;  // of the first of the four columns
  const float4 updates = {__shfl_sync(kWholeWarp, update, from), __shfl_sync(kWholeWarp, update, from + 8),
                          __shfl_sync(kWholeWarp, update, from + 16),
                          __shfl_sync(kWholeWarp, update, from + 24)};
  state.add(k, updates);
  return fmaf(dot, update, value);
}

template <int kQuads, bool kAligned>
__device__ void run_rows(const RuleParams& p, const RuleBlock& block, const DeltaSequence& sequence,
                         RowsTile<kQuads> (&tiles)[2], RuleState<kQuads>& state) {
  const RuleThread place = RuleThread::of_warps_columns();
  const int32_t columns = block.columns(p);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize, own_column = place.column + lane / 8;
  const auto tokens_from = [&](int32_t first) { return min(kRowTokens, sequence.count - first); };
  const float first_beta = stage_rows<kQuads, kAligned>(p, block, sequence.first, tokens_from(0), tiles[0]);
  make_gates<kQuads>(p, block, tokens_from(0), first_beta, tiles[0]);
  for (int32_t first = 0; first < sequence.count; first += kRowTokens) {
    const RowsTile<kQuads>& tile = tiles[first / kRowTokens % 2];
    RowsTile<kQuads>& next = tiles[(first / kRowTokens + 1) % 2];  // all warps have left it
    const int32_t count = tokens_from(first), next_count = max(tokens_from(first + kRowTokens), 0);
    const float beta =
        stage_rows<kQuads, kAligned>(p, block, sequence.first + first + kRowTokens, next_count, next);
    for (int32_t t = 0; t < count; ++t) {
      const float out = row_step<kQuads>(tile, t, place, state);
      if (lane % 8 < 2 && own_column < columns) block.out(p, sequence.first + first + t)[own_column] = out;
    }
    make_gates<kQuads>(p, block, next_count, beta, next);
  }
}

}  // namespace minfer::cuda
