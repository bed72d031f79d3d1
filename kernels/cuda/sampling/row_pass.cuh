#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/order_key.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sampling/exp_weight.cuh"
#include "kernels/cuda/sampling/row_group.cuh"

/// Passes over one row of logits that a RowGroup holds, one slice a block: the largest logit, sums of weights,
/// the token at which a running sum passes a share.
///
/// Sums of weights are integers, so they are exact: results depend neither on the number of blocks or threads
/// nor on the order of atomics.
namespace minfer::cuda {

/// Tokens [first, first + size) of a row. A logit that is NaN counts as -inf: every comparison puts it below.
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
    return (other > logit) | ((other == logit) & (other_token <= token));  // without branches
  }
};

__device__ __forceinline__ RowCutoff shorter(const RowCutoff& a, const RowCutoff& b) {
  return a.keeps(b.logit, b.token) ? b : a;
}

/// A token of a row as a number with the order of logits, then lower tokens first; above 0 for every logit except NaN.
__device__ __forceinline__ uint64_t token_key(float logit, int32_t token) {
  return static_cast<uint64_t>(order_key(logit)) << 32 | ~static_cast<uint32_t>(token);
}
__device__ __forceinline__ RowCutoff token_of_key(uint64_t key) {
  return {value_of_key(static_cast<uint32_t>(key >> 32)), static_cast<int32_t>(~static_cast<uint32_t>(key))};
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
  __device__ uint64_t packed() const { return token < 0 ? 0 : token_key(logit, token); }
  __device__ static LargestLogit unpacked(uint64_t bits) {
    if (bits == 0) return {};
    const RowCutoff of_key = token_of_key(bits);
    return {of_key.logit, of_key.token};
  }
};

/// The largest logit, and the smallest above -inf; the initial values if all are -inf.
struct LogitRange {
  float largest = -INFINITY;
  float smallest = INFINITY;

  __device__ __forceinline__ void see(float logit) {
    largest = fmaxf(largest, logit);
    if (logit > -INFINITY) smallest = fminf(smallest, logit);
  }
};

/// All threads of the group, kThreads in a block, call the methods.
template <int kGroup, int kThreads>
class RowPass {
  static constexpr int kWarps = kThreads / kWarpSize;
  static_assert(kWarps <= kWarpSize && kGroup <= kThreads);

  struct Run {
    int32_t begin;
    RowWeight before;  ///< of the block's tokens before `begin`
  };

 public:
  using Mail = typename RowGroup<kGroup>::Mail;

  /// In shared memory.
  struct Memory {
    typename RowGroup<kGroup>::Memory group;
    RowWeight warp_values[kWarpSize];
    RowWeight runs[kWarps];  ///< sums of the warps' runs, if they are known
    Run run;
    int32_t found;
  };

  __device__ RowPass(RowGroup<kGroup>& group, Memory& memory, const RowSlice& slice)
      : group_(group), memory_(memory), slice_(slice) {}

  /// Calls visit(logit, token) for this thread's tokens, and for the -inf behind the slice.
  template <class Visit>
  __device__ void for_each(const Visit& visit) const {
    for_each_four(0, slice_.size, thread(), kThreads, -INFINITY, [&](const float4& four, int32_t token) {
      visit(four.x, token);
      visit(four.y, token + 1);
      visit(four.z, token + 2);
      visit(four.w, token + 3);
    });
  }

  __device__ __noinline__ LargestLogit largest() {
    LargestLogit own;
    for_each([&](float logit, int32_t token) { own.see(logit, token); });
    return largest_of(own);
  }
  /// The largest logit that any thread saw; each thread saw its tokens in ascending order.
  __device__ LargestLogit largest_of(const LargestLogit& own) {
    uint64_t bits = warp_max(own.packed());
    if (lane() == 0) memory_.warp_values[warp()] = bits;
    __syncthreads();
    bits = warp_max(lane() < kWarps ? memory_.warp_values[lane()] : 0);
    const Mail* of_blocks = group_.gather(bits);
    for (int r = 0; r < kGroup; ++r)
      bits = max(bits, of_blocks[r].value);
    return LargestLogit::unpacked(bits);
  }

  __device__ __noinline__ LogitRange own_range() const {
    LogitRange own;
    for_each([&](float logit, int32_t) { own.see(logit); });
    return own;
  }
  /// The range of the logits that all threads saw.
  __device__ __noinline__ LogitRange range_of(const LogitRange& own) {
    uint32_t largest = warp_max(order_key(own.largest));
    uint32_t smallest = warp_max(~order_key(own.smallest));
    if (lane() == 0) memory_.warp_values[warp()] = uint64_t{largest} << 32 | smallest;
    __syncthreads();
    const uint64_t of_warp = lane() < kWarps ? memory_.warp_values[lane()] : 0;
    largest = warp_max(static_cast<uint32_t>(of_warp >> 32));
    smallest = warp_max(static_cast<uint32_t>(of_warp));
    const Mail* of_blocks = group_.gather(uint64_t{largest} << 32 | smallest);
    for (int r = 0; r < kGroup; ++r) {
      largest = max(largest, static_cast<uint32_t>(of_blocks[r].value >> 32));
      smallest = max(smallest, static_cast<uint32_t>(of_blocks[r].value));
    }
    return {value_of_key(largest), value_of_key(~smallest)};
  }

  /// The sum of weigh(logit) over the row.
  template <class Weigh>
  __device__ RowWeight sum(const Weigh& weigh) {
    const RowWeight own = add_up(weigh.floor(), [&](const float(&logits)[4], int32_t, float(&weights)[4]) {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        weights[k] = weigh(logits[k]);
    });
    return sum_of_blocks(group_.gather(block_scan(own).total));
  }

  /// The lowest token at which the running sum of weigh(logit, token) is above share(sum of all), which is less than the
  /// sum of all. First the block is found, then a run of its tokens, then the token. Other blocks get -1, unless all are
  /// `told`. Logits below `floor` weigh nothing. Sums of runs that are already known are used as those of `weigh`.
  template <class Weigh, class Share>
  __device__ int32_t find_token(float floor, const Weigh& weigh, const Share& share_of, bool told) {
    const int32_t run = run_length();
    const int32_t begin = warp() * run;
    const RowWeight of_run =
        has_runs_ ? memory_.runs[warp()]
                  : add_up_run(floor, [&](const float(&logits)[4], int32_t token, float(&weights)[4]) {
#pragma unroll
                      for (int k = 0; k < 4; ++k)
                        weights[k] = weigh(logits[k], token + k);
                    });
    const Scan scan = block_scan(lane() == 0 ? of_run : 0);
    const Mail* of_blocks = group_.gather(scan.total);

    RowWeight share = share_of(sum_of_blocks(of_blocks));
    int32_t owner = 0;
    while (share >= of_blocks[owner].value)
      share -= of_blocks[owner++].value;
    if (group_.rank() == owner) {
      if (lane() == 0 && scan.before <= share && share - scan.before < of_run)
        memory_.run = {begin, scan.before};
      __syncthreads();
      find_in_run(memory_.run.begin, run, weigh, share - memory_.run.before);
      __syncthreads();
    }
    if (!told) return group_.rank() == owner ? memory_.found : -1;
    const Mail* found = group_.gather(0, static_cast<uint32_t>(memory_.found));
    return static_cast<int32_t>(found[owner].count);
  }

  /// Makes find_token() add up the runs itself.
  __device__ void forget_runs() {
    has_runs_ = false;
  }

 protected:
  struct Scan {
    RowWeight before;  ///< sum over the threads before this one
    RowWeight total;
  };

  __device__ static int thread() {
    return static_cast<int>(threadIdx.x);
  }
  __device__ static int lane() {
    return static_cast<int>(threadIdx.x % kWarpSize);
  }
  __device__ static int warp() {
    return static_cast<int>(threadIdx.x / kWarpSize);
  }

  __device__ static RowWeight sum_of_blocks(const Mail* of_blocks) {
    RowWeight total = 0;
    for (int r = 0; r < kGroup; ++r)
      total += of_blocks[r].value;
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

  /// The sum over this thread's tokens of the weights that weigh(logits, first token, weights) gives for four
  /// tokens at a time; groups of four below `floor` are skipped.
  template <class Weigh>
  __device__ RowWeight add_up(float floor, const Weigh& weigh) const {
    return add_up_in(0, slice_.size, thread(), kThreads, floor, weigh);
  }

  /// The same for this warp's run of tokens.
  template <class Weigh>
  __device__ RowWeight add_up_run(float floor, const Weigh& weigh) const {
    const int32_t begin = warp() * run_length();
    return warp_sum(
        add_up_in(begin, min(begin + run_length(), slice_.size), lane(), kWarpSize, floor, weigh));
  }

  __device__ int32_t size() const {
    return slice_.size;
  }

  /// Keeps the sums of runs for find_token(): `of_run` is this warp's sum; add_to_run() adds to it. The caller syncs the block.
  __device__ void begin_runs(RowWeight of_run) {
    if (lane() == 0) memory_.runs[warp()] = of_run;
    has_runs_ = true;
    __syncthreads();
  }
  /// Any thread: adds a token of any block's slice; only the block that has it counts it.
  __device__ void add_to_run(int32_t token, float weight) {
    const int32_t at = token - slice_.first;
    if (at < 0 || at >= slice_.size) return;
    atomicAdd(reinterpret_cast<unsigned long long*>(&memory_.runs[at / run_length()]),
              static_cast<unsigned long long>(weight_units(weight)));
  }

  template <class Weigh>
  __device__ RowWeight add_up_in(int32_t begin, int32_t end, int first_step, int steps, float floor,
                                 const Weigh& weigh) const {
    RowWeight own = 0;
    const int32_t part = WeightSum::kMost * steps;
#pragma unroll 1
    for (int32_t at = begin; at < end; at += part) {
      WeightSum sum;
      for_each_four(at, min(at + part, end), first_step, steps, floor,
                    [&](const float4& four, int32_t token) {
                      const float logits[4] = {four.x, four.y, four.z, four.w};
                      float weights[4];
                      weigh(logits, token, weights);
#pragma unroll
                      for (int k = 0; k < 4; ++k)
                        sum.add(weights[k]);
                    });
      own += sum.units();
    }
    return own;
  }

  /// Visits the tokens of [begin, end) in fours, except those below `floor`; begin is a multiple of 4.
  template <class Visit>
  __device__ __forceinline__ void for_each_four(int32_t begin, int32_t end, int first_step, int steps,
                                                float floor, const Visit& visit) const {
    const RowSlice slice = slice_;
#pragma unroll 1
    for (int32_t i = begin + 4 * first_step; i < end; i += 4 * steps) {
      const float4 four = *reinterpret_cast<const float4*>(slice.values + i);
      if (fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w)) >= floor) visit(four, slice.first + i);
    }
  }

  RowGroup<kGroup>& group_;

 private:
  /// The number of a block's tokens that belong to a warp.
  __device__ int32_t run_length() const {
    return (slice_.size + 4 * kThreads - 1) / (4 * kThreads) * (4 * kWarpSize);
  }

  /// All threads of a block call it: sets `found` to the token of [begin, begin + run) at which the running sum
  /// passes `share`.
  template <class Weigh>
  __device__ void find_in_run(int32_t begin, int32_t run, const Weigh& weigh, RowWeight share) {
    const int32_t length = (run + kThreads - 1) / kThreads;
    const int32_t first = begin + thread() * length;
    const int32_t end = min(min(first + length, begin + run), slice_.size);
    const auto weigh_at = [&](int32_t i) { return weight_units(weigh(slice_.values[i], slice_.first + i)); };
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

  Memory& memory_;
  RowSlice slice_;
  bool has_runs_ = false;
};

}  // namespace minfer::cuda
