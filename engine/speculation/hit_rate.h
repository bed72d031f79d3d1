#pragma once

namespace minfer {

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

}  // namespace minfer
