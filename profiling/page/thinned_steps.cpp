#include "profiling/page/thinned_steps.h"

#include <algorithm>
#include <utility>

namespace minfer {

void ThinnedSteps::add_to(Bucket& bucket, const StepSummary& step) {
  if (step.wall_us > bucket.longest.wall_us) {
    if (!bucket.shortest) bucket.shortest = std::move(bucket.longest);
    bucket.longest = step;
  } else if (!bucket.shortest || step.wall_us < bucket.shortest->wall_us) {
    bucket.shortest = step;
  }
}

void ThinnedSteps::merge_pairs() {
  for (size_t i = 0; i < buckets_.size() / 2; ++i) {
    Bucket& second = buckets_[2 * i + 1];
    Bucket merged = std::move(buckets_[2 * i]);
    add_to(merged, second.longest);
    if (second.shortest) add_to(merged, *second.shortest);
    buckets_[i] = std::move(merged);
  }
  buckets_.resize(buckets_.size() / 2);
  steps_of_bucket_ *= 2;
}

void ThinnedSteps::add(const StepSummary& step) {
  slowest_.add(step);
  if (!buckets_.empty() && steps_in_last_ < steps_of_bucket_) {
    ++steps_in_last_;
    return add_to(buckets_.back(), step);
  }
  if (buckets_.size() == kMostBuckets) merge_pairs();
  buckets_.push_back({.longest = step, .shortest = std::nullopt});
  steps_in_last_ = 1;
}

std::vector<StepSummary> ThinnedSteps::steps() const {
  std::vector<StepSummary> steps = slowest_.steps();
  for (const Bucket& bucket : buckets_) {
    steps.push_back(bucket.longest);
    if (bucket.shortest) steps.push_back(*bucket.shortest);
  }
  std::ranges::stable_sort(steps, {}, &StepSummary::step);
  const auto is_same = [](const StepSummary& a, const StepSummary& b) { return a.step == b.step; };
  steps.erase(std::unique(steps.begin(), steps.end(), is_same), steps.end());
  return steps;
}

}  // namespace minfer
