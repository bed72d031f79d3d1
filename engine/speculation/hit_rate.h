#pragma once

namespace minfer {

/// How often guesses of one kind are right, of late: counts that halve when there are many.
class HitRate {
 public:
  HitRate() = default;
  /// As if so many guesses had been right and wrong before.
  HitRate(float hits, float misses) : hits_(hits), misses_(misses) {}

  void add(bool hit) {
    (hit ? hits_ : misses_) += 1.0f;
    if (hits_ + misses_ <= kMemory) return;
    hits_ *= 0.5f;
    misses_ *= 0.5f;
  }
  /// The share of hits; as long as there are few, mostly `prior`.
  float value(float prior) const { return (hits_ + kPriorWeight * prior) / (hits_ + misses_ + kPriorWeight); }
  /// Guesses that it remembers.
  float count() const { return hits_ + misses_; }

 private:
  static constexpr float kMemory = 64.0f;
  static constexpr float kPriorWeight = 4.0f;

  float hits_ = 0.0f;
  float misses_ = 0.0f;
};

}  // namespace minfer
