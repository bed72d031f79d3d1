#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "profiling/report/report_data.h"
#include "profiling/report/summary.h"

namespace minfer {

/// Some of a profile's steps: of each bucket of successive steps the shortest and the longest, and the slowest of all. So outliers stay,
/// and so does the range of the others. Buckets hold one step at first, and twice as many each time that there are too many buckets:
/// memory does not grow with the number of steps.
class ThinnedSteps {
 public:
  static constexpr size_t kMostBuckets = 800, kSlowest = 20;

  void add(const StepSummary& step);
  /// In their order, each once.
  std::vector<StepSummary> steps() const;
  /// Successive steps of which two are kept; 1: all are.
  int64_t steps_of_bucket() const { return steps_of_bucket_; }

 private:
  struct Bucket {
    StepSummary longest;
    std::optional<StepSummary> shortest;  ///< unless it is the longest
  };
  static void add_to(Bucket& bucket, const StepSummary& step);
  void merge_pairs();

  std::vector<Bucket> buckets_;
  int64_t steps_of_bucket_ = 1;
  int64_t steps_in_last_ = 0;
  SlowestSteps slowest_{kSlowest};
};

}  // namespace minfer
