#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/request/drafter.h"

namespace minfer {

struct LiveRequest;
struct Sequence;

/// How often guesses of one kind have been right recently: counts that halve when there are many.
class HitRate {
 public:
  HitRate() = default;
  /// Begins as if `hits` guesses had been right and `misses` wrong.
  HitRate(float hits, float misses) : hits_(hits), misses_(misses) {}

  void add(bool hit) {
    (hit ? hits_ : misses_) += 1.0f;
    if (hits_ + misses_ <= kMemory) return;
    hits_ *= 0.5f;
    misses_ *= 0.5f;
  }
  /// The share of hits; mostly `prior` while there are few guesses.
  float value(float prior) const { return (hits_ + kPriorWeight * prior) / (hits_ + misses_ + kPriorWeight); }
  /// Guesses that it remembers.
  float count() const { return hits_ + misses_; }

 private:
  static constexpr float kMemory = 64.0f;
  static constexpr float kPriorWeight = 4.0f;

  float hits_ = 0.0f;
  float misses_ = 0.0f;
};

/// A sequence that is to bring drafts, and the most that it may bring.
struct DraftOrder {
  LiveRequest* request = nullptr;
  int32_t num_drafts = 0;
};

/// Makes the drafts of all sequences. Engine thread.
class DraftSource {
 public:
  DraftSource() = default;
  DraftSource(const DraftSource&) = delete;
  DraftSource& operator=(const DraftSource&) = delete;
  virtual ~DraftSource() = default;

  virtual std::unique_ptr<Drafter> make_drafter(const Sequence& sequence) = 0;
  /// Fills Sequence::drafts with as many as there are, up to the number ordered. The output is the same whatever they are.
  virtual void propose(std::span<const DraftOrder> orders) = 0;
  /// True if the cost of drafts and their hit rate are known. Until then little is spent on drafts.
  virtual bool is_known() const { return true; }
  /// The time to make a draft token for each of some sequences, in ns; 0: next to nothing, or not known yet.
  virtual double pass_ns() const { return 0.0; }
  /// True if it proposes nothing while a step is under way.
  virtual bool needs_idle() const { return false; }
  /// Tokens to compute before a sequence's first draft, if it has had no drafts for long.
  virtual int32_t num_behind(const Drafter& /*drafter*/) const { return 0; }
  /// The time for each of these tokens, in ns; 0: next to nothing, or not known yet.
  virtual double token_ns() const { return 0.0; }
};

}  // namespace minfer
