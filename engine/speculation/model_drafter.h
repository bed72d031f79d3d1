#pragma once

#include <algorithm>
#include <vector>

#include "engine/speculation/drafter.h"
#include "engine/speculation/hit_rate.h"

namespace minfer {

/// How good a draft model's drafts for one sequence are, and what of the sequence is in its KV cache. How good they are is known only
/// where they are checked, so where they were not for long they count as good again: ever more seldom.
class ModelDrafter : public Drafter {
 public:
  /// `all`: the hit rate of all sequences, which outlives this one.
  explicit ModelDrafter(HitRate& all) : all_(all) {}

  void follow(std::span<const TokenId> tokens) override { num_tokens_ = static_cast<int32_t>(tokens.size()); }
  float hit_rate(int32_t /*index*/) const override {
    const float rate = own_.value(all_.value(kFirstGuess));
    return is_due_again() ? std::max(rate, kFirstGuess) : rate;
  }
  void checked(int32_t num_drafts, int32_t num_accepted) override {
    for (int32_t i = 0; i < std::min(num_drafts, num_accepted + 1); ++i) {
      own_.add(i < num_accepted);
      all_.add(i < num_accepted);
    }
    cache.num_sure += num_accepted;
    retry_after_ = is_due_again() ? std::min(2 * retry_after_, kSeldom) : kSoon;
    num_tokens_at_check_ = num_tokens_;
  }
  /// Tokens that the draft model would have to compute before its first draft.
  int32_t num_behind() const { return std::max(0, num_tokens_ - cache.num_computed); }

  /// What the draft model has written of the sequence; its own.
  struct Cache {
    int32_t num_computed = 0;  ///< leading tokens, drafts among them
    int32_t num_sure = 0;  ///< leading tokens of which is known that they are the sequence's, not just drafts
    int32_t num_preemptions = -1;  ///< of the sequence when these were found; it has other blocks since
    int32_t num_named = 0;         ///< leading blocks whose content the draft model has a name for
    std::vector<uint64_t> names;   ///< of each full block of the sequence, with all before it
  };
  Cache cache;

 private:
  static constexpr float kFirstGuess = 0.7f;
  static constexpr int32_t kSoon = 64, kSeldom = 4096;  ///< tokens without a check

  bool is_due_again() const { return num_tokens_ - num_tokens_at_check_ > retry_after_; }

  HitRate own_;
  HitRate& all_;
  int32_t num_tokens_ = 0;
  int32_t num_tokens_at_check_ = 0;
  int32_t retry_after_ = kSoon;
};

}  // namespace minfer
