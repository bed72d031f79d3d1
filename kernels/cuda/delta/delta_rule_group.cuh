#pragma once

#include "kernels/cuda/delta/delta_rule.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"

// Tokens of a prompt in groups of four. A group multiplies the state once, and updates it once. With S before
// the group, a_j and b_j of its tokens, and the decay between two of them, D(i, j) = a_(i+1) ... a_j:
//
//   u_j = b_j (v_j - A_j S^T k_j - sum over i < j of D(i, j) (k_i . k_j) u_i)       A_j = a_0 ... a_j
//   out_j = A_j S^T q_j + sum over i <= j of D(i, j) (k_i . q_j) u_i
//   S = A_3 S + sum of D(i, 3) k_i u_i^T
//
// This is the recurrence written out. Missing tokens of the last group have zeros and a decay of 1.
namespace minfer::cuda {

inline constexpr int kGroupTokens = 4;
inline constexpr int kTileGroups = 2;
inline constexpr int kTileTokens = kGroupTokens * kTileGroups;
static_assert(2 * kTileGroups == kRuleWarps);

/// The factors between the tokens of a group.
struct GroupFactors {
  float4 answers[kGroupTokens];  ///< [j][i]: D(i, j) (k_i . k_j), zeros from i = j on
  float4 values[kGroupTokens];   ///< [j][i]: D(i, j) (k_i . q_j), zeros behind i = j
  float kept[kGroupTokens];      ///< A_j
  float strength[kGroupTokens];  ///< b_j
  float last[kGroupTokens];      ///< D(j, 3)
};

/// q, k, v and gates of some tokens.
template <int kQuads>
struct RuleTile {
  static constexpr int kKeys = 4 * kRowGroups * kQuads;
  float q[kTileTokens][kKeys];
  float k[kTileTokens][kKeys];
  float v[kTileTokens][kRuleColumns];
  GroupFactors factors[kTileGroups];
  RuleGates gates[kTileTokens];
};

/// Starts the copy of `size` elements, with zeros behind them up to `padded`; only zeros unless `is_there`.
template <bool kAligned>
__device__ __forceinline__ void stage_row(float* to, const float* from, int32_t size, int32_t padded,
                                          bool is_there) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize;
  if constexpr (kAligned) {
    for (int32_t i = lane; i < padded / 4; i += kWarpSize)
      copy_async(shared_address(to + 4 * i), from + 4 * i, is_there);
  } else {
    for (int32_t i = lane; i < padded; i += kWarpSize)
      to[i] = is_there && i < size ? from[i] : 0.0f;
  }
}

/// Starts the copy of tokens [first, first + count) of the step, one warp a token, with zeros for tokens missing in whole groups.
template <int kQuads, bool kAligned>
__device__ void stage(const RuleParams& p, const RuleBlock& block, int64_t first, int32_t count,
                      RuleTile<kQuads>& tile) {
  const int32_t staged = (count + kGroupTokens - 1) / kGroupTokens * kGroupTokens;
  for (int32_t t = static_cast<int32_t>(threadIdx.x) / kWarpSize; t < staged; t += kRuleWarps) {
    constexpr int32_t kKeys = RuleTile<kQuads>::kKeys;
    const bool is_there = t < count;
    const int64_t token = is_there ? first + t : first;
    stage_row<kAligned>(tile.q[t], block.q(p, token), p.key_size, kKeys, is_there);
    stage_row<kAligned>(tile.k[t], block.k(p, token), p.key_size, kKeys, is_there);
    stage_row<kAligned>(tile.v[t], block.v(p, token), block.columns(p), kRuleColumns, is_there);
  }
  commit_copies();
}

/// Computes the factors of a tile's groups: for each group one warp those of answers, another one those of
/// values. Lane 8 i + 2 j computes the factor of tokens i and j.
template <int kQuads>
__device__ void make_factors(RuleTile<kQuads>& tile, int32_t count) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize,
                warp = static_cast<int32_t>(threadIdx.x) / kWarpSize;
  const int32_t first = warp / 2 * kGroupTokens;
  const bool makes_values = warp % 2 != 0;
  if (first >= count) return;
  GroupFactors& factors = tile.factors[warp / 2];
  float dots[kGroupTokens * kGroupTokens] = {};
#pragma unroll
  for (int32_t e = lane; e < RuleTile<kQuads>::kKeys; e += kWarpSize) {
    float k[kGroupTokens], x[kGroupTokens];
#pragma unroll
    for (int t = 0; t < kGroupTokens; ++t) {
      k[t] = tile.k[first + t][e];
      x[t] = makes_values ? tile.q[first + t][e] : k[t];
    }
#pragma unroll
    for (int i = 0; i < kGroupTokens; ++i)
#pragma unroll
      for (int j = 0; j < kGroupTokens; ++j)
        dots[kGroupTokens * i + j] = fmaf(k[i], x[j], dots[kGroupTokens * i + j]);
  }
  float dot = scattered_sum<kGroupTokens * kGroupTokens, 16>(dots);
  dot += __shfl_xor_sync(kWholeWarp, dot, 1);
  const int32_t i = lane / 8, j = lane / 2 % kGroupTokens;
  const RuleGates* gates = tile.gates + first;
  float between = 1.0f;  // D(i, j)
#pragma unroll
  for (int t = 1; t < kGroupTokens; ++t)
    between *= i < t && t <= j ? gates[t].decay : 1.0f;
  const bool counts = makes_values ? i <= j : i < j;
  float4& row = makes_values ? factors.values[j] : factors.answers[j];
  reinterpret_cast<float*>(&row)[i] = counts ? dot * between : 0.0f;
  if (makes_values || lane >= kGroupTokens) return;
  float kept = 1.0f, last = 1.0f;
#pragma unroll
  for (int t = 0; t < kGroupTokens; ++t) {
    kept *= t <= lane ? gates[t].decay : 1.0f;
    last *= t > lane ? gates[t].decay : 1.0f;
  }
  factors.kept[lane] = kept;
  factors.last[lane] = last;
  factors.strength[lane] = gates[lane].strength;
}

__device__ __forceinline__ float dot(const float4& a, const float (&b)[kGroupTokens]) {
  return fmaf(a.w, b[3], fmaf(a.z, b[2], fmaf(a.y, b[1], a.x * b[0])));
}

/// A group's step by a warp, for its eight columns. Lanes with the same lowest bit have the same four columns;
/// a lane gets the sums of column lane / 8 of these, and computes the output of token lane / 2 % 4.
template <int kQuads>
__device__ __forceinline__ void group_step(const RuleTile<kQuads>& tile, int32_t group,
                                           const RuleThread& place, RuleState<kQuads>& state, float& out) {
  constexpr int kSums = 4 * kGroupTokens;
  const int32_t first = group * kGroupTokens;
  float answers[kSums], values[kSums];  // of column c and token j at 4 c + j
#pragma unroll
  for (int j = 0; j < kGroupTokens; ++j) {
    float k[4 * kQuads], q[4 * kQuads];
    load_rows<kQuads, true>(tile.k[first + j], RuleTile<kQuads>::kKeys, place, k);
    load_rows<kQuads, true>(tile.q[first + j], RuleTile<kQuads>::kKeys, place, q);
    const float4 of_k = state.product(k), of_q = state.product(q);
    answers[j] = of_k.x, answers[4 + j] = of_k.y, answers[8 + j] = of_k.z, answers[12 + j] = of_k.w;
    values[j] = of_q.x, values[4 + j] = of_q.y, values[8 + j] = of_q.z, values[12 + j] = of_q.w;
  }
  const float answer = scattered_sum<kSums, 16>(answers), value = scattered_sum<kSums, 16>(values);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize;
  const GroupFactors& factors = tile.factors[group];
  const int32_t own_token = lane / 2 % kGroupTokens, own_column = place.column + lane / 8;
  float updates[kGroupTokens] = {};
#pragma unroll
  for (int j = 0; j < kGroupTokens; ++j) {
    const float of_token = __shfl_sync(kWholeWarp, answer, (lane & ~6) | 2 * j);
    const float known = fmaf(factors.kept[j], of_token, dot(factors.answers[j], updates));
    updates[j] = factors.strength[j] * (tile.v[first + j][own_column] - known);
  }
  out = fmaf(factors.kept[own_token], value, dot(factors.values[own_token], updates));
  state.scale(factors.kept[kGroupTokens - 1]);
#pragma unroll
  for (int j = 0; j < kGroupTokens; ++j) {
    const float update = factors.last[j] * updates[j];
    const int32_t from = lane & 1;  // of the first of the four columns
    const float4 of_columns = {
        __shfl_sync(kWholeWarp, update, from), __shfl_sync(kWholeWarp, update, from + 8),
        __shfl_sync(kWholeWarp, update, from + 16), __shfl_sync(kWholeWarp, update, from + 24)};
    float k[4 * kQuads];
    load_rows<kQuads, true>(tile.k[first + j], RuleTile<kQuads>::kKeys, place, k);
    state.add(k, of_columns);
  }
}

}  // namespace minfer::cuda
