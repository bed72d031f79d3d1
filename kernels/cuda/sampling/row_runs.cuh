#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sampling/row_exchange.cuh"
#include "kernels/cuda/sampling/row_pass.cuh"

namespace minfer::cuda {

/// A prefix of a row in the order of weights, largest first, lower token first among equals: all tokens before this one.
struct TriedToken {
  float weight = kLeastWeight;
  int32_t token = -1;

  __device__ __forceinline__ bool is_behind(float other, int32_t other_token) const {
    return (other > weight) | ((other == weight) & (other_token < token));
  }
};

inline constexpr int kBlockRuns = 32;
inline constexpr int kWarpTokens = 4 * kWarpSize;  ///< that a warp reads at a time

/// Room for a slice of `slice_tokens` tokens in runs of equal length.
inline constexpr int32_t padded_run_slice(int32_t slice_tokens) {
  constexpr int32_t kStep = kBlockRuns * kWarpTokens;
  return (slice_tokens + kStep - 1) / kStep * kStep;
}

/// The place of a block's slice, if it is in shared memory: the start of the memory that the launch asks for.
__device__ __forceinline__ float* shared_slice() {
  extern __shared__ float4 dynamic_shared[];
  return reinterpret_cast<float*>(dynamic_shared);
}

/// The slice of a block in 32 runs of consecutive tokens, all of the same length, for any number of threads. A run's result
/// goes to all blocks of the row at once, so that a pass ends with one exchange between the blocks. Sums of weights are added
/// in f32 by the lanes of a run, in one order, and from there on in units: they do not depend on the number of threads.
///
/// One object serves all rows of a block, one after the other. All threads of the group call the methods, except find(), which
/// a warp calls. After telling all blocks, wait as the method's comment says. `kIsShared`: the slice is the shared_slice().
template <int kGroup, int kThreads, bool kIsShared>
class RowRuns {
  using Group = RowGroup<kGroup>;
  static constexpr int kWarps = kThreads / kWarpSize;
  static constexpr int kRuns = kBlockRuns;
  static constexpr int kWarpRuns = kRuns / kWarps;              ///< of a warp, one after the other
  static constexpr int kLaneRuns = kRuns * kGroup / kWarpSize;  ///< of a row, by lanes
  static_assert(kWarps * kWarpRuns == kRuns && kWarps >= kGroup);

 public:
  /// In shared memory.
  struct Memory {
    float largest[kRuns * kGroup];  ///< of parts of the row's tokens, which need not be the runs
    alignas(16)
        RowWeight sums[2][kRuns * kGroup];  ///< in turns: a block may be a pass ahead of one that still reads
    uint64_t found;                         ///< weight, then token
  };
  /// In shared memory that is used for nothing else.
  struct Exchanges {
    typename RowExchange<kGroup, kThreads, 2>::Memory of_all;
    typename RowExchange<kGroup, kThreads, 1>::Memory of_one;
  };
  /// One thread calls it, before anything else. A barrier of the group follows.
  __device__ static void prepare(Exchanges& exchanges) {
    RowExchange<kGroup, kThreads, 2>::prepare(exchanges.of_all);
    RowExchange<kGroup, kThreads, 1>::prepare(exchanges.of_one);
  }

  /// `slice`: with -inf behind it up to padded_run_slice(slice_tokens). `slice_tokens`: the size of every block's slice but the last.
  __device__ RowRuns(Memory& memory, Exchanges& exchanges, const RowSlice& slice, int32_t slice_tokens)
      : memory_(memory),
        of_all_(exchanges.of_all),
        of_one_(exchanges.of_one),
        slice_(slice),
        length_(padded_run_slice(slice_tokens) / kRuns) {}

  /// Waits for the values of every block: the largest logits, or sums. A barrier of the block.
  __device__ void wait_for_all() { of_all_.wait(); }

  /// `own`: the largest of the thread's tokens, any part of the slice. wait_for_all() follows.
  __device__ void tell_largest(float own) {
#pragma unroll
    for (int distance = kWarps / 2; distance > 0; distance /= 2)
      own = fmaxf(own, __shfl_xor_sync(kWholeWarp, own, distance));
    tell(memory_.largest, own);
  }
  __device__ float largest() const {
    uint32_t key = 0;
#pragma unroll
    for (int i = 0; i < kLaneRuns; ++i)
      key = max(key, order_key(memory_.largest[lane() * kLaneRuns + i]));
    return value_of_key(warp_most(key));
  }

  /// A logit that at least `count` tokens reach, and few more; below all logits if the parts of the row do not tell. Any warp.
  __device__ float reached_by(int32_t count) const {
    constexpr uint32_t kLowest = kKeyOfMinusInfinity + 1;
    uint32_t keys[kLaneRuns];
    uint32_t low = ~0u;
    uint32_t high = 0;
#pragma unroll
    for (int i = 0; i < kLaneRuns; ++i) {
      keys[i] = order_key(memory_.largest[lane() * kLaneRuns + i]);
      if (keys[i] >= kLowest) low = min(low, keys[i]);
      high = max(high, keys[i]);
    }
    const auto parts_from = [&](uint32_t key) {
      int32_t parts = 0;
#pragma unroll
      for (int i = 0; i < kLaneRuns; ++i)
        parts += keys[i] >= key ? 1 : 0;
      return __reduce_add_sync(kWholeWarp, parts);
    };
    if (parts_from(kLowest) < count) return value_of_key(kLowest);
    low = __reduce_min_sync(kWholeWarp, low);  // all parts with any logit reach it
    high = warp_most(high) + 1;                // no part reaches it
    while (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      const int32_t parts = parts_from(middle);
      if (parts < count) {
        high = middle;
      } else {
        low = middle;
        if (parts <= count + count / 8) break;
      }
    }
    return value_of_key(low);
  }

  /// Replaces logits by weights and adds these up. wait_for_all() follows.
  __device__ void weigh(const LogitWeight& weight) {
    float* values = this->values();
    add_up([&](int32_t at, float& sum) {
      auto& four = *reinterpret_cast<float4*>(values + at);
      const float4 logits = four;
      const float4 weights = {weight(logits.x), weight(logits.y), weight(logits.z), weight(logits.w)};
      four = weights;
      sum += (weights.x + weights.y) + (weights.z + weights.w);
    });
  }
  /// Adds up the weights of the tokens before `tried`. wait_for_all() follows.
  __device__ void add_up_before(const TriedToken& tried) {
    const float* values = this->values();
    const float above = __uint_as_float(__float_as_uint(tried.weight) + 1);
    const int32_t at_tried = tried.token - slice_.first;
    add_up([&](int32_t at, float& sum) {
      const float4 four = *reinterpret_cast<const float4*>(values + at);
      const float least = at <= at_tried ? tried.weight : above;
      if (at <= at_tried && at_tried < at + 4) {
        const float weights[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int k = 0; k < 4; ++k)
          sum += weights[k] >= (at + k < at_tried ? least : above) ? weights[k] : 0.0f;
        return;
      }
      sum += four.x >= least ? four.x : 0.0f;
      sum += four.y >= least ? four.y : 0.0f;
      sum += four.z >= least ? four.z : 0.0f;
      sum += four.w >= least ? four.w : 0.0f;
    });
  }
  /// The sums of a pass, over the lanes of any warp: each lane has the sums of some runs.
  struct Sums {
    RowWeight of_runs[kLaneRuns];
    RowWeight before;   ///< of the runs of earlier lanes
    RowWeight through;  ///< of those and the lane's own
    RowWeight total;
  };
  __device__ __forceinline__ Sums sums() const {
    Sums sums;
    RowWeight own = 0;
#pragma unroll
    for (int i = 0; i < kLaneRuns; ++i) {
      sums.of_runs[i] = sums_[lane() * kLaneRuns + i];
      own += sums.of_runs[i];
    }
    sums.through = warp_sum_up_to(own);
    sums.before = sums.through - own;
    sums.total = __shfl_sync(kWholeWarp, sums.through, kWarpSize - 1);
    return sums;
  }

  /// The run of the row on which a share falls, and the rest of the share there.
  struct Place {
    int32_t run;
    RowWeight rest;
  };
  /// `share`: below the total.
  __device__ __forceinline__ Place place_of(const Sums& sums, RowWeight share) const {
    const bool is_here = share >= sums.before && share < sums.through;
    RowWeight rest = share - sums.before;
    int32_t run = lane() * kLaneRuns;
    bool is_behind = true;
#pragma unroll
    for (int i = 0; i + 1 < kLaneRuns; ++i) {
      is_behind = is_behind && rest >= sums.of_runs[i];
      if (is_behind) {
        rest -= sums.of_runs[i];
        ++run;
      }
    }
    const int owner = __ffs(static_cast<int>(__ballot_sync(kWholeWarp, is_here))) - 1;
    return {__shfl_sync(kWholeWarp, run, owner), __shfl_sync(kWholeWarp, rest, owner)};
  }
  /// True if the run is this warp's.
  __device__ bool has(int32_t run) const {
    return run / kRuns == Group::rank() && run % kRuns / kWarpRuns == warp();
  }
  /// Called by the warp with the run: the token before `tried` at which the running sum passes the rest of the share, in all lanes.
  __device__ TriedToken find(const Place& place, const TriedToken& tried) const {
    const int32_t length = length_ / kWarpSize;
    const int32_t of_run = place.run % kRuns * length_;
    const float* values = this->values() + of_run;
    const int32_t token = slice_.first + of_run;
    double parts[4] = {};
    for (int32_t i = lane() * length; i < (lane() + 1) * length; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(values + i);
      const float weights[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int k = 0; k < 4; ++k)
        parts[k] += tried.is_behind(weights[k], token + i + k) ? static_cast<double>(weights[k]) : 0.0;
    }
    const double own = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    const double rest = static_cast<double>(place.rest) * 0x1p-43;
    const double through = warp_sum_up_to(own);
    // Lanes' sums round differently from runs' sums: a share at the end of the run falls on its last token.
    const int owner = first_or_last(own > 0.0, own > 0.0 && through > rest);
    return find_in_lane(values, token, owner * length, length, __shfl_sync(kWholeWarp, through - own, owner),
                        rest, tried);
  }
  /// The same warp tells all blocks. wait_for_found() follows.
  __device__ void tell_found(const TriedToken& found) {
    if (lane() >= kGroup) return;
    of_one_.send(lane(), &memory_.found,
                 uint64_t{__float_as_uint(found.weight)} << 32 | static_cast<uint32_t>(found.token));
  }
  /// Returns the token that the owning warp has found. A barrier of the block.
  __device__ TriedToken wait_for_found() {
    of_one_.arrive(sizeof(memory_.found));
    of_one_.wait();
    const uint64_t found = memory_.found;
    return {__uint_as_float(static_cast<uint32_t>(found >> 32)), static_cast<int32_t>(found)};
  }

 private:
  __device__ static int lane() {
    return static_cast<int>(threadIdx.x % kWarpSize);
  }
  __device__ static int warp() {
    return static_cast<int>(threadIdx.x / kWarpSize);
  }

  __device__ __forceinline__ float* values() const {
    if constexpr (kIsShared) return shared_slice();
    return slice_.values;
  }

  /// The first lane with `is_wanted`; if there is none, the last lane with `has_any`.
  __device__ static int first_or_last(bool has_any, bool is_wanted) {
    const uint32_t any = __ballot_sync(kWholeWarp, has_any);
    const uint32_t wanted = __ballot_sync(kWholeWarp, is_wanted);
    return wanted != 0 ? __ffs(static_cast<int>(wanted)) - 1 : 31 - __clz(static_cast<int>(any));
  }
  /// find() among values [begin, begin + length) of tokens from `token` + begin on, one lane each; `sum` is the sum before them.
  __device__ TriedToken find_in_lane(const float* values, int32_t token, int32_t begin, int32_t length,
                                     double sum, double rest, const TriedToken& tried) const {
    TriedToken found;
    for (int32_t at = 0; at < length; at += kWarpSize) {
      const int32_t i = begin + at + lane();
      const float weight = at + lane() < length ? values[i] : 0.0f;
      const bool counts = tried.is_behind(weight, token + i);
      const double through = sum + warp_sum_up_to(counts ? static_cast<double>(weight) : 0.0);
      const bool passes = counts && through > rest;
      if (const int owner = first_or_last(counts, passes); owner >= 0)
        found = {__shfl_sync(kWholeWarp, weight, owner), token + begin + at + owner};
      if (__any_sync(kWholeWarp, passes)) break;
      sum = __shfl_sync(kWholeWarp, through, kWarpSize - 1);
    }
    return found;
  }

  /// Sends values, on which kWarps lanes each agree, to all blocks: one for each of the warp's runs.
  template <class T>
  __device__ void tell(T* of_row, const T& value) {
    const int rank = lane() % kWarps;
    if (rank < kGroup)
      of_all_.send(rank, of_row + Group::rank() * kRuns + warp() * kWarpRuns + lane() / kWarps, value);
    of_all_.arrive(kRuns * kGroup * sizeof(T));
  }

  /// add(place in the slice, sum) adds four tokens to a lane's sum of a run.
  template <class Add>
  __device__ __forceinline__ void add_up(const Add& add) {
    float sums[kWarpRuns] = {};
    const int32_t begin = warp() * kWarpRuns * length_ + 4 * lane();
#pragma unroll 1
    for (int32_t i = 0; i < length_; i += kWarpTokens) {
#pragma unroll
      for (int r = 0; r < kWarpRuns; ++r)
        add(begin + r * length_ + i, sums[r]);
    }
    RowWeight units[kWarpRuns];
#pragma unroll
    for (int r = 0; r < kWarpRuns; ++r)
      units[r] = weight_units(sums[r]);
    // Halves of the warp take halves of the runs until kWarps lanes share each run.
    int distance = kWarpSize / 2;
#pragma unroll
    for (int runs = kWarpRuns; runs > 1; runs /= 2, distance /= 2) {
      const bool is_upper = (lane() & distance) != 0;
#pragma unroll
      for (int r = 0; r < runs / 2; ++r) {
        const RowWeight given = is_upper ? units[r] : units[r + runs / 2];
        units[r] = (is_upper ? units[r + runs / 2] : units[r]) + __shfl_xor_sync(kWholeWarp, given, distance);
      }
    }
#pragma unroll
    for (; distance > 0; distance /= 2)
      units[0] += __shfl_xor_sync(kWholeWarp, units[0], distance);
    sums_ = memory_.sums[of_all_.turn()];
    tell(sums_, units[0]);
  }

  Memory& memory_;
  RowExchange<kGroup, kThreads, 2> of_all_;
  RowExchange<kGroup, kThreads, 1> of_one_;
  RowSlice slice_;
  int32_t length_;             ///< tokens of a run
  RowWeight* sums_ = nullptr;  ///< of the last pass
};

}  // namespace minfer::cuda
