#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "profiling/report/report_data.h"
#include "profiling/summary/summary.h"

namespace minfer {

/// A sample of a profile's steps: the shortest and the longest of each bucket of successive steps, and the slowest of all. So outliers
/// stay, and so does the range of the other steps. Buckets hold one step at first; the size doubles each time that there are too many
/// buckets. So memory does not grow with the number of steps.
class ThinnedSteps {
 public:
  static constexpr size_t kMostBuckets = 800, kSlowest = 20;

  void add(const StepSummary& step);
  /// The kept steps in order, each once.
  std::vector<StepSummary> steps() const;
  /// The number of successive steps in a bucket, which keeps two; 1: all steps are kept.
  int64_t steps_of_bucket() const { return steps_of_bucket_; }

 private:
  struct Bucket {
    StepSummary longest;
    std::optional<StepSummary> shortest;  ///< none if it is also the longest
  };
  static void add_to(Bucket& bucket, const StepSummary& step);
  void merge_pairs();

  std::vector<Bucket> buckets_;
  int64_t steps_of_bucket_ = 1;
  int64_t steps_in_last_ = 0;
  SlowestSteps slowest_{kSlowest};
};

}  // namespace minfer
