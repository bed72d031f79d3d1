#pragma once

#include <cstdint>

#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/sampling/order_key.cuh"
#include "kernels/cuda/sampling/row_group.cuh"

/// Searches over one row of logits that a RowGroup holds, a slice a block: the largest logit, the prefix of
/// the row ordered by logit that has a given weight, the token at which a running sum passes a share.
///
/// Weights are integers (a count, or a probability in units of 2^-43), so that sums are exact: results do
/// not depend on the number of blocks or threads, nor on the order in which atomics arrive.
namespace minfer::cuda {

using RowWeight = uint64_t;

/// Tokens [first, first + size) of a row. No logit is NaN.
struct RowSlice {
  float* values;  ///< 16-byte aligned shared or global memory: [size], then -inf up to a multiple of 4
  int32_t first;
  int32_t size;
};

/// The last token of a prefix of the row ordered by logit, largest first, lower token first among equals.
struct RowCutoff {
  float logit = -INFINITY;
  int32_t token = INT32_MAX;

  __device__ bool keeps(float other, int32_t other_token) const {
    return other > logit || (other == logit && other_token <= token);
  }
};

__device__ __forceinline__ RowCutoff shorter(const RowCutoff& a, const RowCutoff& b) {
  return a.keeps(b.logit, b.token) ? b : a;
}

/// The largest logit seen so far and the first token that had it; -1 if none was above -inf. Skips NaN.
struct LargestLogit {
  float logit = -INFINITY;
  int32_t token = -1;

  __device__ void see(float other, int32_t other_token) {
    if (other > logit) {
      logit = other;
      token = other_token;
    }
  }
  /// As a number that orders by logit, then puts the lower token first.
  __device__ uint64_t packed() const {
    if (token < 0) return 0;
    return static_cast<uint64_t>(order_key(logit)) << 32 | ~static_cast<uint32_t>(token);
  }
  __device__ static LargestLogit unpacked(uint64_t bits) {
    if (bits == 0) return {};
    return {value_of_key(static_cast<uint32_t>(bits >> 32)),
            static_cast<int32_t>(~static_cast<uint32_t>(bits))};
  }
};

/// Methods are called by all threads of the group, kThreads in a block.
template <int kGroup, int kThreads>
class RowSearch {
  static constexpr int kWarps = kThreads / kWarpSize;
  static constexpr int kDigitBits = 11;
  static constexpr int kBins = 1 << kDigitBits;
  static constexpr int kOwnBins = kBins / kGroup;  ///< of those merged by one block
  static constexpr int kThreadBins = (kOwnBins + kThreads - 1) / kThreads;

  struct Run {
    int32_t begin;
    RowWeight before;  ///< of the block's tokens before it
  };
  struct Crossing {
    int32_t bin;
    RowWeight before;  ///< of all bins before it
    RowWeight weight;
  };

 public:
  /// In shared memory.
  struct Memory {
    typename RowGroup<kGroup>::Memory group;
    uint32_t low[kBins];  ///< weights of this block's tokens by bin, modulo 2^32
    uint32_t high[kBins];
    RowWeight merged[kOwnBins];  ///< weights of all blocks' tokens, in bins rank * kOwnBins ...
    RowWeight warp_values[kWarpSize];
    Crossing crossing;
    Run run;
    int32_t found;
  };

  __device__ RowSearch(RowGroup<kGroup>& group, Memory& memory, const RowSlice& slice)
      : group_(group), memory_(memory), slice_(slice) {}

  /// Calls visit(logit, token) for the tokens of this thread, and for those of -inf behind the slice.
  template <class Visit>
  __device__ void for_each(const Visit& visit) const {
    for_each_in(0, slice_.size, thread(), kThreads, visit);
  }

  __device__ LargestLogit largest() {
    LargestLogit own;
    for_each([&](float logit, int32_t token) { own.see(logit, token); });
    return largest_of(own);
  }
  /// The largest of what the threads saw, each its tokens in ascending order.
  __device__ LargestLogit largest_of(const LargestLogit& own) {
    uint64_t bits = warp_max(own.packed());
    if (lane() == 0) memory_.warp_values[warp()] = bits;
    __syncthreads();
    bits = warp_max(lane() < kWarps ? memory_.warp_values[lane()] : 0);
    const uint64_t* of_blocks = group_.gather(bits);
    for (int r = 0; r < kGroup; ++r)
      bits = max(bits, of_blocks[r]);
    return LargestLogit::unpacked(bits);
  }

  /// The sum of weigh(logit) over the row.
  template <class Weigh>
  __device__ RowWeight sum(const Weigh& weigh) {
    RowWeight own = 0;
    for_each([&](float logit, int32_t) { own += weigh(logit); });
    return sum_of_blocks(group_.gather(block_scan(own).total));
  }

  /// The shortest prefix, within the prefix `within`, whose weights weigh(logit) add up to goal(sum of all
  /// within) or more; at least one token. Radix selection: the digits of the last token's key are found one
  /// after the other from the weights of the keys that share the digits before.
  template <class Weigh, class Goal>
  __device__ RowCutoff find_cutoff(const RowCutoff& within, const Weigh& weigh, const Goal& goal_of) {
    uint32_t key = 0;
    RowWeight goal = 0;
    Crossing crossing;
    int resolved = 32;  // bits from here on are those of `key`
    while (resolved > 0) {
      const int shift = max(resolved - kDigitBits, 0);
      const uint32_t mask = (1u << (resolved - shift)) - 1;
      fill_bins([&](float logit, int32_t token, uint32_t* bin) -> RowWeight {
        const uint32_t other = order_key(logit);
        *bin = mask - (other >> shift & mask);  // bins ascend as logits descend
        const bool counts = (other ^ key) >> (resolved - 1) >> 1 == 0 && within.keeps(logit, token);
        return counts ? weigh(logit) : 0;
      });
      const uint64_t* of_blocks = merge_bins();
      if (resolved == 32) {
        const RowWeight total = sum_of_blocks(of_blocks);
        goal = min(max(goal_of(total), RowWeight{1}), total);
      }
      crossing = find_crossing(of_blocks, goal);
      goal -= crossing.before;
      key |= (mask - static_cast<uint32_t>(crossing.bin)) << shift;
      resolved = shift;
      if (goal == crossing.weight) break;  // all of the bin
    }
    const float logit = value_of_key(max(key, kKeyOfMinusInfinity));
    if (goal == crossing.weight) return shorter({logit, INT32_MAX}, within);
    // Equal logits: the prefix ends at the lowest tokens of them that reach the goal.
    const RowWeight weight = weigh(logit);
    const RowWeight wanted = (goal + weight - 1) / weight;
    if (wanted * weight == crossing.weight) return shorter({logit, INT32_MAX}, within);
    const auto is_tie = [&](float other, int32_t token) -> RowWeight {
      return other == logit && within.keeps(other, token);
    };
    return {logit, find_token(is_tie, [&](RowWeight) { return wanted - 1; })};
  }

  /// The lowest token at which the running sum of weigh(logit, token) is above share(sum of all), which is
  /// less than the sum of all. First the block is found, then a run of tokens in it, then the token.
  template <class Weigh, class Share>
  __device__ int32_t find_token(const Weigh& weigh, const Share& share_of) {
    const int32_t run = (slice_.size + 4 * kThreads - 1) / (4 * kThreads) * (4 * kWarpSize);  // of a warp
    const int32_t begin = warp() * run;
    RowWeight of_run = 0;
    for_each_in(begin, min(begin + run, slice_.size), lane(), kWarpSize,
                [&](float logit, int32_t token) { of_run += weigh(logit, token); });
    of_run = warp_sum(of_run);
    const Scan scan = block_scan(lane() == 0 ? of_run : 0);
    const uint64_t* of_blocks = group_.gather(scan.total);

    RowWeight share = share_of(sum_of_blocks(of_blocks));
    int32_t owner = 0;
    while (share >= of_blocks[owner])
      share -= of_blocks[owner++];
    if (group_.rank() == owner) {
      if (lane() == 0 && scan.before <= share && share - scan.before < of_run)
        memory_.run = {begin, scan.before};
      __syncthreads();
      find_in_run(memory_.run.begin, run, weigh, share - memory_.run.before);
      __syncthreads();
    }
    const uint64_t* found = group_.gather(static_cast<uint64_t>(memory_.found));
    return static_cast<int32_t>(found[owner]);
  }

 private:
  struct Scan {
    RowWeight before;  ///< sum over the threads before this one
    RowWeight total;
  };

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int lane() { return static_cast<int>(threadIdx.x % kWarpSize); }
  __device__ static int warp() { return static_cast<int>(threadIdx.x / kWarpSize); }

  __device__ static RowWeight sum_of_blocks(const uint64_t* of_blocks) {
    RowWeight total = 0;
    for (int r = 0; r < kGroup; ++r)
      total += of_blocks[r];
    return total;
  }

  __device__ Scan block_scan(RowWeight value) {
    const RowWeight in_warp = warp_sum_up_to(value);
    if (lane() == kWarpSize - 1) memory_.warp_values[warp()] = in_warp;
    __syncthreads();
    const RowWeight of_warps = warp_sum_up_to(lane() < kWarps ? memory_.warp_values[lane()] : 0);
    const RowWeight warps_before = warp() == 0 ? 0 : __shfl_sync(kWholeWarp, of_warps, warp() - 1);
    const RowWeight total = __shfl_sync(kWholeWarp, of_warps, kWarpSize - 1);
    __syncthreads();
    return {warps_before + in_warp - value, total};
  }

  /// Visits the tokens of [begin, end), four a step; begin is a multiple of 4.
  template <class Visit>
  __device__ void for_each_in(int32_t begin, int32_t end, int first_step, int steps,
                              const Visit& visit) const {
#pragma unroll 1
    for (int32_t i = begin + 4 * first_step; i < end; i += 4 * steps) {
      const float4 four = *reinterpret_cast<const float4*>(slice_.values + i);
      visit(four.x, slice_.first + i);
      visit(four.y, slice_.first + i + 1);
      visit(four.z, slice_.first + i + 2);
      visit(four.w, slice_.first + i + 3);
    }
  }

  /// Adds up this block's tokens: weigh(logit, token, &bin) gives a token's weight and bin.
  template <class Weigh>
  __device__ void fill_bins(const Weigh& weigh) {
    for (int b = thread(); b < kBins; b += kThreads)
      memory_.low[b] = memory_.high[b] = 0;
    __syncthreads();
    for_each([&](float logit, int32_t token) {
      uint32_t bin;
      const RowWeight weight = weigh(logit, token, &bin);
      if (weight == 0) return;
      // There is no 64-bit addition in shared memory: the carry goes to the upper half.
      const auto low = static_cast<uint32_t>(weight);
      const uint32_t old = atomicAdd(&memory_.low[bin], low);
      const uint32_t high = static_cast<uint32_t>(weight >> 32) + (old + low < low ? 1 : 0);
      if (high != 0) atomicAdd(&memory_.high[bin], high);
    });
  }

  /// Sums this block's share of the bins over the blocks. Returns the sums of all blocks' shares.
  __device__ const uint64_t* merge_bins() {
    group_.sync();
    RowWeight own = 0;
    for (int b = thread(); b < kOwnBins; b += kThreads) {
      const int bin = group_.rank() * kOwnBins + b;
      RowWeight weight = 0;
#pragma unroll 4
      for (int r = 0; r < kGroup; ++r) {
        weight += *group_.of_rank(r, &memory_.low[bin]);
        weight += static_cast<RowWeight>(*group_.of_rank(r, &memory_.high[bin])) << 32;
      }
      memory_.merged[b] = weight;
      own += weight;
    }
    return group_.gather(block_scan(own).total);
  }

  /// The bin in which the running sum over the bins reaches `goal`.
  __device__ Crossing find_crossing(const uint64_t* of_blocks, RowWeight goal) {
    int32_t owner = 0;
    RowWeight before = 0;
    while (before + of_blocks[owner] < goal)
      before += of_blocks[owner++];
    const RowWeight* merged = group_.of_rank(owner, memory_.merged);
    RowWeight weights[kThreadBins];
    RowWeight own = 0;
#pragma unroll
    for (int k = 0; k < kThreadBins; ++k) {
      const int b = thread() * kThreadBins + k;
      weights[k] = b < kOwnBins ? merged[b] : 0;
      own += weights[k];
    }
    before += block_scan(own).before;
#pragma unroll
    for (int k = 0; k < kThreadBins; ++k) {
      if (before < goal && goal - before <= weights[k])
        memory_.crossing = {owner * kOwnBins + thread() * kThreadBins + k, before, weights[k]};
      before += weights[k];
    }
    __syncthreads();
    return memory_.crossing;
  }

  /// All threads of a block: sets `found` to the token of [begin, begin + run) at which the running sum
  /// passes `share`.
  template <class Weigh>
  __device__ void find_in_run(int32_t begin, int32_t run, const Weigh& weigh, RowWeight share) {
    const int32_t length = (run + kThreads - 1) / kThreads;
    const int32_t first = begin + thread() * length;
    const int32_t end = min(min(first + length, begin + run), slice_.size);
    const auto weigh_at = [&](int32_t i) { return weigh(slice_.values[i], slice_.first + i); };
    RowWeight own = 0;
    for (int32_t i = first; i < end; ++i)
      own += weigh_at(i);
    RowWeight sum = block_scan(own).before;
    if (share < sum || share - sum >= own) return;
    int32_t i = first;
    while ((sum += weigh_at(i)) <= share)
      ++i;
    memory_.found = slice_.first + i;
  }

  RowGroup<kGroup>& group_;
  Memory& memory_;
  RowSlice slice_;
};

}  // namespace minfer::cuda
