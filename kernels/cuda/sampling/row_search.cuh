#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/digit_search.cuh"
#include "kernels/cuda/sampling/row_runs.cuh"
#include "kernels/cuda/sampling/sort_keys.cuh"

namespace minfer::cuda {

/// Finds the end of a prefix of a row. There are two passes. The first adds up all weights exactly and counts tokens in bins
/// of equal width below the largest logit. The counts tell, to within the width of a bin, in which bins the prefix may end.
/// The second adds up the weights above those bins exactly and lists the tokens in them; one block sorts and walks the list.
/// The bins are only a guess: the end is found among the listed tokens, by exact sums, or not at all. If it is not found, if
/// logits are too similar to be listed or if the end lies beyond the bins, DigitSearch searches the row by digits.
///
/// Barriers between the blocks of a row: one that passes 1 and 2 hide, and three that blocks wait for.
template <int kGroup, int kThreads, bool kIsShared>
class RowSearch : public DigitSearch<kGroup, kThreads> {
  using Digits = DigitSearch<kGroup, kThreads>;
  using Pass = RowPass<kGroup, kThreads>;
  using Mail = typename Pass::Mail;
  using Scan = typename Pass::Scan;
  using Pass::add_up;
  using Pass::block_scan;
  using Pass::group_;
  using Pass::sum_of_blocks;
  using Pass::thread;
  using Runs = RowRuns<kGroup, kThreads, kIsShared>;

  static constexpr int kBins = 2048;
  static constexpr int kOwnBins = kBins / kGroup;  ///< merged in one block
  static constexpr int kThreadBins = kBins / kThreads;
  static constexpr uint32_t kListed = 1024;  ///< tokens that can be sorted
  static constexpr int kThreadListed = kListed / kThreads;
  static_assert(kThreadBins * kThreads == kBins && kOwnBins % kThreadBins == 0);
  static_assert(kThreadListed * kThreads == kListed);
  static_assert(kListed * sizeof(uint64_t) <=
                kBins * sizeof(uint32_t));  // the list in Memory does not overlap Binned::merged

  /// Counts give the end to within a bin's width either way (guess 0), or to within a 16th of it, almost surely
  /// right if many tokens lie there (guess 1).
  static constexpr int kGuesses = 2;

  /// The bins in which the prefix ends, if it ends in bins.
  struct Band {
    int32_t first;
    int32_t last;
    uint32_t before;   ///< tokens in bins before the first
    uint32_t through;  ///< tokens in bins up to the last one, including it
    __device__ bool can_be_listed() const { return first < kBins && through - before <= kListed; }
  };
  struct Binned {
    uint32_t counts[kBins];  ///< of this block's tokens
    uint32_t merged
        [kOwnBins];  ///< of all blocks' tokens, in bins rank * kOwnBins ...: others still read it when the list begins
  };

 public:
  /// In shared memory.
  struct Memory {
    typename Pass::Memory pass;
    union {
      typename Runs::Memory runs;
      Binned binned;
      uint64_t listed[kListed];  ///< token_key() of this block's tokens; in block 0 later of all
      typename Digits::DigitMemory digits;
    };
    Band bands[kGuesses];
    uint64_t end;  ///< token_key() of the last token; 0: not found
    uint32_t num_listed;
    float least_listed;
  };

  __device__ RowSearch(RowGroup<kGroup>& group, Memory& memory, const RowSlice& slice)
      : Digits(group, memory.pass, memory.digits, slice), memory_(memory) {}

  /// The most tokens for which list_largest() works.
  static constexpr int kMostLargest = kThreads < 256 ? kThreads : 256;

  /// Lists the tokens of the largest logits in the first block, in order. Returns their number, or 0 if there were too
  /// many, e.g. if more logits are equal than can be listed. `reached`: RowRuns::reached_by(), from the first warp.
  __device__ __noinline__ uint32_t list_largest(float reached) {
    if (thread() == 0) {
      memory_.least_listed = reached;
      memory_.num_listed = 0;
    }
    __syncthreads();
    const float least = memory_.least_listed;
    Memory& memory = memory_;
    this->for_each_four(0, this->size(), thread(), kThreads, least, [&](const float4& four, int32_t token) {
      const float logits[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (!(logits[k] >= least)) continue;
        if (const uint32_t at = atomicAdd(&memory.num_listed, 1u); at < kListed)
          memory.listed[at] = token_key(logits[k], token + k);
      }
    });
    __syncthreads();
    const Mail* of_blocks = group_.gather(0, memory_.num_listed);
    uint32_t listed = 0;
    for (int r = 0; r < kGroup; ++r)
      listed += of_blocks[r].count;
    if (listed > kListed) return 0;
    if (group_.rank() == 0) {
      collect(of_blocks);
      sort_descending<kThreads>(memory_.listed, listed);
    }
    group_.sync();
    return listed;
  }
  /// Lists the tokens of a prefix, at most kListed of them.
  __device__ uint32_t list_prefix(const RowCutoff& prefix) {
    __syncthreads();
    if (thread() == 0) memory_.num_listed = 0;
    group_.sync();
    Memory* first = group_.of_rank(0, &memory_);
    this->for_each([&](float logit, int32_t token) {
      if (logit == -INFINITY || !prefix.keeps(logit, token)) return;
      first->listed[atomicAdd(&first->num_listed, 1u)] = token_key(logit, token);
    });
    group_.sync();
    const uint32_t listed = memory_.num_listed;
    if (group_.rank() == 0) sort_descending<kThreads>(memory_.listed, listed);
    return listed;
  }
  /// In the first block: the listed tokens, largest first.
  __device__ RowCutoff listed(uint32_t place) const {
    return token_of_key(memory_.listed[place]);
  }

  /// The first block: draws a token from the first `count` listed ones, at most kMostLargest, by inverse
  /// transform in the order of their ids, among those that top_p and min_p leave.
  __device__ int32_t draw_listed(uint32_t count, const LogitWeight& weight, float top_p, float min_p,
                                 double random) {
    const auto i = static_cast<uint32_t>(thread());
    const RowCutoff own = i < count ? listed(i) : RowCutoff{};
    const float own_weight = i < count ? weight(own.logit) : 0.0f;
    RowWeight units = weight_units(own_weight);
    if (top_p < 1.0f) {
      const Scan scan = block_scan(units);
      if (scan.before >= PrefixGoal{.share = top_p}.of(scan.total)) units = 0;
    }
    if (own_weight < fminf(min_p, 1.0f)) units = 0;
    const RowWeight mass = block_scan(units).total;
    const RowWeight share = min(RowWeight{__double2ull_rd(random * static_cast<double>(mass))}, mass - 1);
    RowWeight* of_listed = memory_.listed + kListed - kMostLargest;
    if (i < count) of_listed[i] = units;
    __syncthreads();
    if (i < count && units > 0) {
      RowWeight before = 0;
      for (uint32_t k = 0; k < count; ++k)
        before += listed(k).token < own.token ? of_listed[k] : 0;
      if (before <= share && share - before < units) memory_.end = static_cast<uint64_t>(own.token);
    }
    __syncthreads();
    return static_cast<int32_t>(memory_.end);
  }

  /// The shortest prefix, within the prefix `within`, whose weights weigh(logit) add up to the goal or more; at
  /// least one token, and none that weighs nothing unless all are kept. `range`: the row's.
  template <class Weigh>
  __device__ __noinline__ RowCutoff find_cutoff(RowCutoff within, LogitRange range, Weigh weigh,
                                                PrefixGoal prefix_goal) {
    this->forget_runs();
    const Bins bins(range, weigh.reach());
    if (!bins.are_usable) return this->find_by_digits(within, weigh, prefix_goal);
    const bool is_whole = within.logit == -INFINITY;
    const RowWeight total = is_whole ? count(WholeRow{}, bins, weigh) : count(within, bins, weigh);
    const RowWeight goal = prefix_goal.of(total);
    if (goal == total) return within;
    const Band band = find_band(bins, weigh, goal);
    uint64_t end = 0;
    if (band.can_be_listed()) {
      end = is_whole ? find_end(WholeRow{}, bins, band, weigh, goal)
                     : find_end(within, bins, band, weigh, goal);
    }
    if (end == 0) return this->find_by_digits(within, weigh, prefix_goal);
    return token_of_key(end);
  }

 private:
  /// The prefix that is the whole row; tokens of -inf weigh nothing and lie in no bin.
  struct WholeRow {
    float logit = -INFINITY;
    __device__ __forceinline__ bool keeps(float /*logit*/, int32_t /*token*/) const { return true; }
  };

  /// Logits in bins: bin b is about `largest` - b / per_logit. Bins ascend as logits descend.
  struct Bins {
    float largest;
    float per_logit;
    bool are_usable;

    __device__ Bins(const LogitRange& range, float reach)
        : largest(range.largest),
          per_logit((kBins - 1) / fminf(range.largest - range.smallest, reach)),
          are_usable(range.largest > range.smallest && range.largest - range.smallest < INFINITY &&
                     per_logit < INFINITY) {}
    /// `difference`: a logit minus the largest, 0 or below. A result of kBins or more is beyond the last bin.
    __device__ __forceinline__ uint32_t operator()(float difference) const {
      constexpr float kMagic = 0x1.8p23f;  // leaves the rounded integer in the low bits of a sum
      return __float_as_uint(fmaf(difference, -per_logit, kMagic)) - 0x4b400000u;
    }
    __device__ float logit_of(int bin) const { return largest - static_cast<float>(bin) / per_logit; }
  };

  /// Returns the sum of all weights; fills `merged`, which is then complete in all blocks.
  template <class Within, class Weigh>
  __device__ RowWeight count(const Within& within, const Bins& bins, const Weigh& weigh) {
#pragma unroll 1
    for (int b = thread(); b < kBins; b += kThreads)
      memory_.binned.counts[b] = 0;
    for (int b = thread(); b < kOwnBins; b += kThreads)
      memory_.binned.merged[b] = 0;
    if (thread() == 0) memory_.num_listed = 0;
    __syncthreads();
    group_.arrive();
    uint32_t* counts = memory_.binned.counts;
    __builtin_assume(__isShared(counts));
    const RowWeight own = add_up(fmaxf(weigh.floor(), within.logit),
                                 [&](const float(&logits)[4], int32_t token, float(&weights)[4]) {
#pragma unroll
                                   for (int k = 0; k < 4; ++k) {
                                     const bool kept = within.keeps(logits[k], token + k);
                                     const float difference = __fsub_rn(logits[k], bins.largest);
                                     const float weight = weigh.below(difference);
                                     weights[k] = kept ? weight : 0.0f;
                                     const uint32_t bin = kept ? bins(difference) : kBins;
                                     if (bin < kBins) atomicAdd(&counts[bin], 1u);
                                   }
                                 });
    const Scan scan = block_scan(own);
    group_.wait();
#pragma unroll 1
    for (int b = thread(); b < kBins; b += kThreads) {
      if (const uint32_t own_count = memory_.binned.counts[b]; own_count > 0)
        atomicAdd(group_.of_rank(b / kOwnBins, memory_.binned.merged) + b % kOwnBins, own_count);
    }
    return sum_of_blocks(group_.gather(scan.total));
  }

  /// The band is the same in all blocks. Its first bin is kBins if the prefix ends beyond the bins.
  template <class Weigh>
  __device__ Band find_band(const Bins& bins, const Weigh& weigh, RowWeight goal) {
    const int first_bin = thread() * kThreadBins;
    const uint32_t* merged =
        group_.of_rank(first_bin / kOwnBins, memory_.binned.merged) + first_bin % kOwnBins;
    uint32_t counts[kThreadBins];
    RowWeight weights[kThreadBins];
    RowWeight own_weight = 0;
    uint32_t own_count = 0;
#pragma unroll
    for (int k = 0; k < kThreadBins; ++k) {
      counts[k] = merged[k];
      weights[k] = counts[k] * weight_units(weigh(bins.logit_of(first_bin + k)));
      own_weight += weights[k];
      own_count += counts[k];
    }
    const RowWeight weight_before = block_scan(own_weight).before;
    const Scan of_counts = block_scan(own_count);
    if (thread() < kGuesses)
      memory_.bands[thread()] = {kBins, kBins - 1, 0, static_cast<uint32_t>(of_counts.total)};
    __syncthreads();
    float error = weigh.change(0.5f / bins.per_logit);
#pragma unroll
    for (int guess = 0; guess < kGuesses; ++guess, error *= 1.0f / 16.0f) {
      const RowWeight doubt = __double2ull_ru(static_cast<double>(error) * static_cast<double>(goal));
      const RowWeight least = goal - min(doubt, goal - 1);
      const RowWeight most = goal + doubt;
      Band& band = memory_.bands[guess];
      RowWeight before = weight_before;
      auto tokens = static_cast<uint32_t>(of_counts.before);
#pragma unroll
      for (int k = 0; k < kThreadBins; ++k) {
        const RowWeight through = before + weights[k];
        if (before < least && least <= through) {
          band.first = first_bin + k;
          band.before = tokens;
        }
        tokens += counts[k];
        if (before < most && most <= through) {
          band.last = first_bin + k;
          band.through = tokens;
        }
        before = through;
      }
    }
    __syncthreads();
    return memory_.bands[memory_.bands[0].can_be_listed() ? 0 : 1];
  }

  /// token_key() of the prefix's last token, the same in all blocks; 0: it is not in the band. Keeps the sums
  /// of the kept weights by runs.
  template <class Within, class Weigh>
  __device__ uint64_t find_end(const Within& within, const Bins& bins, const Band& band, const Weigh& weigh,
                               RowWeight goal) {
    const auto first = static_cast<uint32_t>(band.first);
    const auto last = static_cast<uint32_t>(band.last);
    Memory& memory = memory_;
    __builtin_assume(__isShared(&memory));
    const float floor = fmaxf(bins.logit_of(band.last + 1), within.logit);
    const RowWeight of_run =
        this->add_up_run(floor, [&](const float(&logits)[4], int32_t token, float(&weights)[4]) {
          uint32_t to_list = 0;  // one bit a token: few groups of four have any
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float difference = __fsub_rn(logits[k], bins.largest);
            const uint32_t bin = within.keeps(logits[k], token + k) ? bins(difference) : kBins;
            const float weight = weigh.below(difference);
            weights[k] = bin < first ? weight : 0.0f;
            to_list |= bin - first <= last - first ? 1u << k : 0u;
          }
          if (to_list == 0) return;
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            if ((to_list >> k & 1) != 0)
              memory.listed[atomicAdd(&memory.num_listed, 1u)] = token_key(logits[k], token + k);
          }
        });
    const RowWeight of_block = block_scan(Pass::lane() == 0 ? of_run : 0).total;
    const Mail* of_blocks = group_.gather(of_block, memory_.num_listed);
    uint32_t listed = memory_.num_listed;
    if (group_.rank() == 0) {
      const RowWeight above = sum_of_blocks(of_blocks);
      listed = collect(of_blocks);

      if (thread() == 0) memory_.end = 0;
      sort_descending<kThreads>(memory_.listed, listed);
      if (above < goal) walk(listed, weigh, goal - above);
      __syncthreads();
    }
    const uint64_t end = group_.gather(memory_.end)[0].value;
    if (end == 0) return 0;
    this->begin_runs(of_run);
    for (uint32_t i = thread(); i < listed; i += kThreads) {
      if (memory_.listed[i] < end) continue;
      const RowCutoff kept = token_of_key(memory_.listed[i]);
      this->add_to_run(kept.token, weigh(kept.logit));
    }
    __syncthreads();
    return end;
  }

  /// Block 0: appends the tokens that the other blocks have listed. Returns the number of tokens.
  __device__ uint32_t collect(const Mail* of_blocks) {
    uint32_t listed = of_blocks[0].count;
#pragma unroll 1
    for (int r = 1; r < kGroup; ++r) {
      const uint64_t* theirs = group_.of_rank(r, memory_.listed);
#pragma unroll 1
      for (uint32_t i = thread(); i < of_blocks[r].count; i += kThreads)
        memory_.listed[listed + i] = theirs[i];
      listed += of_blocks[r].count;
    }
    return listed;
  }

  /// Block 0: finds the listed token at which the sum of weights reaches `goal`.
  template <class Weigh>
  __device__ void walk(uint32_t listed, const Weigh& weigh, RowWeight goal) {
    RowWeight weights[kThreadListed];
    RowWeight own = 0;
#pragma unroll
    for (int k = 0; k < kThreadListed; ++k) {
      const uint32_t i = thread() * kThreadListed + k;
      weights[k] = i < listed ? weight_units(weigh(token_of_key(memory_.listed[i]).logit)) : 0;
      own += weights[k];
    }
    RowWeight before = block_scan(own).before;
#pragma unroll
    for (int k = 0; k < kThreadListed; ++k) {
      if (before < goal && goal - before <= weights[k])
        memory_.end = memory_.listed[thread() * kThreadListed + k];
      before += weights[k];
    }
  }

  Memory& memory_;
};

}  // namespace minfer::cuda
