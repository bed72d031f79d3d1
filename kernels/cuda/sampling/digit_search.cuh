#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/row_pass.cuh"

namespace minfer::cuda {

/// The weight that a prefix of a row has to reach.
struct PrefixGoal {
  RowWeight weight = 0;
  float share = 0.0f;  ///< of the whole, if `weight` is 0

  /// The goal as a weight: at least one unit, at most the total.
  __device__ RowWeight of(RowWeight total) const {
    const RowWeight goal =
        weight > 0 ? weight : __double2ull_ru(static_cast<double>(share) * static_cast<double>(total));
    return min(max(goal, RowWeight{1}), total);
  }
};

/// Finds the end of a prefix of any row by radix selection. It finds the digits of the last token's key one after the other, from
/// the weights of the keys that share the digits before: four passes over the row, with atomics that collide if logits are close.
template <int kGroup, int kThreads>
class DigitSearch : public RowPass<kGroup, kThreads> {
  using Base = RowPass<kGroup, kThreads>;
  using Mail = typename Base::Mail;
  using Base::block_scan;
  using Base::for_each;
  using Base::group_;
  using Base::sum_of_blocks;
  using Base::thread;

  static constexpr int kDigitBits = 10;
  static constexpr int kDigits = 1 << kDigitBits;
  static constexpr int kOwnDigits = kDigits / kGroup;  ///< merged by one block
  static constexpr int kThreadDigits = (kOwnDigits + kThreads - 1) / kThreads;

  struct Crossing {
    int32_t digit;
    RowWeight before;  ///< of all digits before it
    RowWeight weight;
  };

 public:
  /// In shared memory.
  struct DigitMemory {
    uint32_t low[kDigits];  ///< weights of this block's tokens by digit, modulo 2^32
    uint32_t high[kDigits];
    RowWeight merged[kOwnDigits];  ///< weights of all blocks' tokens, for digits rank * kOwnDigits ...
    Crossing crossing;
  };

  __device__ DigitSearch(RowGroup<kGroup>& group, typename Base::Memory& memory, DigitMemory& digits,
                         const RowSlice& slice)
      : Base(group, memory, slice), digits_(digits) {}

  /// The shortest prefix, within the prefix `within`, whose weights weigh(logit) add up to the goal or more; at
  /// least one token. It ends with a sync().
  template <class Weigh>
  __device__ __noinline__ RowCutoff find_by_digits(RowCutoff within, Weigh weigh, PrefixGoal goal) {
    const RowCutoff cutoff = find(within, weigh, goal);
    group_.sync();
    return cutoff;
  }

 private:
  template <class Weigh>
  __device__ RowCutoff find(const RowCutoff& within, const Weigh& weigh, const PrefixGoal& prefix_goal) {
    uint32_t key = 0;
    RowWeight goal = 0;
    Crossing crossing;
    int resolved = 32;  // bits from here on are final in `key`
    while (resolved > 0) {
      const int shift = max(resolved - kDigitBits, 0);
      const uint32_t mask = (1u << (resolved - shift)) - 1;
      fill_digits([&](float logit, int32_t token, uint32_t* digit) -> RowWeight {
        const uint32_t other = order_key(logit);
        *digit = mask - (other >> shift & mask);  // digits ascend as logits descend
        const bool counts = (other ^ key) >> (resolved - 1) >> 1 == 0 && within.keeps(logit, token);
        return counts ? weight_units(weigh(logit)) : 0;
      });
      const Mail* of_blocks = merge_digits();
      if (resolved == 32) goal = prefix_goal.of(sum_of_blocks(of_blocks));
      crossing = find_crossing(of_blocks, goal);
      goal -= crossing.before;
      key |= (mask - static_cast<uint32_t>(crossing.digit)) << shift;
      resolved = shift;
      if (goal == crossing.weight) break;  // the digit's whole weight is needed
    }
    const float logit = value_of_key(max(key, kKeyOfMinusInfinity));
    if (goal == crossing.weight) return shorter({logit, INT32_MAX}, within);
    // Equal logits: the prefix ends at their lowest tokens that reach the goal.
    const RowWeight weight = weight_units(weigh(logit));
    const RowWeight wanted = (goal + weight - 1) / weight;
    if (wanted * weight == crossing.weight) return shorter({logit, INT32_MAX}, within);
    const auto is_tie = [&](float other, int32_t token) {
      return other == logit && within.keeps(other, token) ? 1.0f : 0.0f;
    };
    return {logit, this->find_token(
                       logit, is_tie, [&](RowWeight) { return (wanted - 1) << kWeightBits; }, true)};
  }

  /// Adds up this block's tokens: weigh(logit, token, &digit) gives a token's weight and digit.
  template <class Weigh>
  __device__ void fill_digits(const Weigh& weigh) {
    for (int d = thread(); d < kDigits; d += kThreads)
      digits_.low[d] = digits_.high[d] = 0;
    __syncthreads();
    DigitMemory& digits = digits_;
    __builtin_assume(__isShared(&digits));
    for_each([&](float logit, int32_t token) {
      uint32_t digit;
      const RowWeight weight = weigh(logit, token, &digit);
      if (weight == 0) return;
      // Shared memory has no 64-bit atomic addition: the carry goes to the upper half.
      const auto low = static_cast<uint32_t>(weight);
      const uint32_t old = atomicAdd(&digits.low[digit], low);
      const uint32_t high = static_cast<uint32_t>(weight >> 32) + (old + low < low ? 1 : 0);
      if (high != 0) atomicAdd(&digits.high[digit], high);
    });
  }

  /// Sums this block's share of the digits over the blocks. Returns the sums of all blocks' shares.
  __device__ const Mail* merge_digits() {
    group_.sync();
    RowWeight own = 0;
    for (int d = thread(); d < kOwnDigits; d += kThreads) {
      const int digit = group_.rank() * kOwnDigits + d;
      RowWeight weight = 0;
#pragma unroll 4
      for (int r = 0; r < kGroup; ++r) {
        weight += *group_.of_rank(r, &digits_.low[digit]);
        weight += static_cast<RowWeight>(*group_.of_rank(r, &digits_.high[digit])) << 32;
      }
      digits_.merged[d] = weight;
      own += weight;
    }
    return group_.gather(block_scan(own).total);
  }

  /// The digit in which the running sum over the digits reaches `goal`.
  __device__ Crossing find_crossing(const Mail* of_blocks, RowWeight goal) {
    int32_t owner = 0;
    RowWeight before = 0;
    while (before + of_blocks[owner].value < goal)
      before += of_blocks[owner++].value;
    const RowWeight* merged = group_.of_rank(owner, digits_.merged);
    RowWeight weights[kThreadDigits];
    RowWeight own = 0;
#pragma unroll
    for (int k = 0; k < kThreadDigits; ++k) {
      const int d = thread() * kThreadDigits + k;
      weights[k] = d < kOwnDigits ? merged[d] : 0;
      own += weights[k];
    }
    before += block_scan(own).before;
#pragma unroll
    for (int k = 0; k < kThreadDigits; ++k) {
      if (before < goal && goal - before <= weights[k])
        digits_.crossing = {owner * kOwnDigits + thread() * kThreadDigits + k, before, weights[k]};
      before += weights[k];
    }
    __syncthreads();
    return digits_.crossing;
  }

  DigitMemory& digits_;
};

}  // namespace minfer::cuda
