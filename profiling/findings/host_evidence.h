#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiling/host/host_sample.h"

namespace minfer {

/// What the machine did while a profile was recorded, in bounded memory: as samples become many, neighbours become one.
class HostEvidence {
 public:
  void add(const HostSample& sample) {
    if (!samples_.empty() && in_last_ < of_each_) {
      samples_.back().add(sample);
      ++in_last_;
      return;
    }
    if (samples_.size() == kMost) {
      for (size_t i = 0; i < kMost / 2; ++i) {
        samples_[i] = samples_[2 * i];
        samples_[i].add(samples_[2 * i + 1]);
      }
      samples_.resize(kMost / 2);
      of_each_ *= 2;
    }
    samples_.push_back(sample);
    in_last_ = 1;
  }

  /// The sum of all samples that lie between two instants, at least in part.
  HostSample within(int64_t begin_ns, int64_t end_ns) const {
    HostSample sum;
    for (const HostSample& sample : samples_) {
      if (sample.end_ns > begin_ns && sample.begin_ns < end_ns) sum.add(sample);
    }
    return sum;
  }

 private:
  static constexpr size_t kMost = 1'024;
  std::vector<HostSample> samples_;
  size_t of_each_ = 1, in_last_ = 0;
};

}  // namespace minfer
