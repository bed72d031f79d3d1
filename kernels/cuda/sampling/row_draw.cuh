#pragma once

#include <cstdint>

#include "kernels/base/random.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/sampling/exp_weight.cuh"
#include "kernels/cuda/sampling/row_search.cuh"
#include "kernels/cuda/sampling/sample_packed.h"

/// The ways to draw a token of a row, and logprobs. All threads of the group call all functions.
namespace minfer::cuda {

inline constexpr double kWeightOfOne = 1ull << kWeightBits;
static_assert(uint64_t{kMaxVocabulary} <= uint64_t{1} << (63 - kWeightBits));

/// Random numbers of a row that are computed together; rows with more tries compute theirs when they need them.
inline constexpr uint32_t kRandoms = 8;

/// A random share of a mass, in units, below the mass.
__device__ __forceinline__ RowWeight share_of(RowWeight mass, double random) {
  return min(RowWeight{__double2ull_rd(random * static_cast<double>(mass))}, mass - 1);
}

/// A row with top_k whose largest logits cannot be listed: inverse transform over the tokens that top_k, top_p and
/// min_p leave, in the order of their ids. Returns -1 in the blocks that do not find the token, unless all are `told`.
template <class Search>
__device__ __noinline__ int32_t draw_within_cuts(Search& search, const PackedRow& row, double random,
                                                 bool told) {
  const LogitRange range = search.range_of(search.own_range());
  const LogitWeight weight(range.largest, row.temperature);
  RowCutoff cutoff = search.find_cutoff({}, range, TokenWeight{},
                                        {.weight = static_cast<RowWeight>(row.top_k) << kWeightBits});
  if (row.top_p < 1.0f) {
    cutoff = search.find_cutoff(cutoff, range, weight, {.share = row.top_p});
  }
  const float min_p = fminf(row.min_p, 1.0f);
  // The cut's sums serve the draw, unless min_p takes tokens from them, or logits of the same weight.
  if (row.top_p >= 1.0f || 0.999f * weight(cutoff.logit) < min_p) search.forget_runs();

  const auto weigh = [&](float logit, int32_t token) {
    const float own = weight(logit);
    return cutoff.keeps(logit, token) & (own >= min_p) ? own : 0.0f;
  };
  return search.find_token(
      fmaxf(cutoff.logit, weight.floor()), weigh,
      [&](RowWeight mass) -> RowWeight { return share_of(mass, random); }, told);
}

/// A row with top_k. Returns the token in the first block, or in all if they are `told`; other blocks may return -1.
template <class Search, class Runs, int kGroup>
__device__ int32_t draw_within_top_k(RowGroup<kGroup>& group, Search& search, const Runs& runs,
                                     const PackedRow& row, float largest, const double& random, bool told) {
  uint32_t listed = 0;
  if (row.top_k <= Search::kMostLargest) {
    listed = search.list_largest(threadIdx.x < kWarpSize ? runs.reached_by(row.top_k) : 0.0f);
  }
  __syncthreads();
  if (listed == 0) return draw_within_cuts(search, row, random, told);
  int32_t token = -1;
  if (group.rank() == 0) {
    token = search.draw_listed(min(static_cast<uint32_t>(row.top_k), listed),
                               LogitWeight(largest, row.temperature), row.top_p, row.min_p, random);
  }
  return told ? static_cast<int32_t>(group.gather(0, static_cast<uint32_t>(token))[0].count) : token;
}

/// True if a row without top_k may need more than one try.
__device__ __forceinline__ bool may_reject(const PackedRow& row) {
  return row.top_p < 1.0f || row.min_p > 0.0f;
}

/// A row without top_k: rejection. A token is drawn from all tokens; if it is not kept, the next is drawn from the
/// tokens before it, and so on. top_p keeps a token if the tokens before it do not have their share yet. Returns the
/// token in the warp that finds it and -1 in others, or the token in all if the row may_reject() or they are `told`.
template <class Runs>
__device__ int32_t draw_by_tries(Runs& runs, const PackedRow& row, float largest, const double* randoms,
                                 bool told) {
  runs.weigh(LogitWeight(largest, row.temperature));
  runs.wait_for_all();
  auto sums = runs.sums();
  const RowWeight goal = row.top_p < 1.0f ? PrefixGoal{.share = row.top_p}.of(sums.total) : ~RowWeight{0};
  TriedToken tried;
  for (uint32_t attempt = 0;; ++attempt) {
    const double random = attempt < kRandoms ? randoms[attempt] : uniform(row.seed, row.position, attempt);
    const auto place = runs.place_of(sums, share_of(sums.total, random));
    TriedToken found;
    if (runs.has(place.run)) {
      found = runs.find(place, tried);
      if (may_reject(row) || told) runs.tell_found(found);
    }
    if (!may_reject(row) && !told) return found.token;
    tried = runs.wait_for_found();
    const bool is_likely = tried.weight >= row.min_p;
    if (row.top_p >= 1.0f && is_likely) return tried.token;
    runs.add_up_before(tried);
    runs.wait_for_all();
    sums = runs.sums();
    if (sums.total == 0 || (sums.total < goal && is_likely)) return tried.token;
  }
}

/// The drawn token's logprob (`logit`: its raw logit), and the `num_top` largest logprobs. `search` and `runs`
/// hold the raw row, `largest` is its largest logit. Block 0 writes the result.
template <class Search, class Runs, int kGroup>
__device__ __noinline__ void report_logprobs(RowGroup<kGroup>& group, Search& search, Runs runs,
                                             float largest, float logit, int32_t num_top, RowResult& result) {
  const auto wanted = static_cast<uint32_t>(num_top);
  uint32_t listed = 0;
  if (num_top > 0) {
    listed = search.list_largest(threadIdx.x < kWarpSize ? runs.reached_by(num_top) : 0.0f);
    if (listed == 0) {
      const LogitRange range = search.range_of(search.own_range());
      listed = search.list_prefix(search.find_cutoff(
          {}, range, TokenWeight{}, {.weight = static_cast<RowWeight>(num_top) << kWeightBits}));
    }
  }
  const RowWeight mass = search.sum(LogitWeight(largest, 1.0f));
  if (group.rank() != 0) return;
  const double normaliser = static_cast<double>(largest) + log(static_cast<double>(mass) / kWeightOfOne);
  const auto logprob = [&](float x) { return static_cast<float>(static_cast<double>(x) - normaliser); };
  const uint32_t count = min(listed, wanted);
  if (threadIdx.x < count) {
    const RowCutoff own = search.listed(threadIdx.x);
    result.top[threadIdx.x] = {own.token, logprob(own.logit)};
  }
  if (threadIdx.x == 0) {
    result.num_top = static_cast<int32_t>(count);
    result.logprob = logprob(logit);
  }
}

}  // namespace minfer::cuda
