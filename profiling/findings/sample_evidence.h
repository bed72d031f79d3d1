#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace minfer {

/// The samples of a recording, in bounded memory: as they become many, add() merges neighbours.
template <class Sample>
class SampleEvidence {
 public:
  void add(const Sample& sample) {
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

  /// The samples that lie, at least in part, between two instants.
  std::vector<Sample> within(int64_t begin_ns, int64_t end_ns) const {
    std::vector<Sample> some;
    for (const Sample& sample : samples_) {
      if (sample.end_ns > begin_ns && sample.begin_ns < end_ns) some.push_back(sample);
    }
    return some;
  }

 private:
  static constexpr size_t kMost = 1'024;
  std::vector<Sample> samples_;
  size_t of_each_ = 1, in_last_ = 0;
};

}  // namespace minfer
