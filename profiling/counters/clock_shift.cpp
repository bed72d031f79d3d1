#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "profiling/counters/sample_attribution.h"

namespace minfer {
namespace {

struct Segment {
  int64_t begin_ns;
  int64_t end_ns;
  size_t slot;
};

/// Ops of all steps in the order of time, with what lies between steps as slot 0.
std::vector<Segment> segments_of(std::span<const StepSpans> steps) {
  std::vector<Segment> segments;
  for (const StepSpans& step : steps) {
    if (!segments.empty() && segments.back().end_ns < step.begin_ns())
      segments.push_back({segments.back().end_ns, step.begin_ns(), 0});
    for (size_t i = 0; i + 1 < step.bounds_ns.size(); ++i) {
      if (step.bounds_ns[i] < step.bounds_ns[i + 1])
        segments.push_back(
            {step.bounds_ns[i], step.bounds_ns[i + 1], static_cast<size_t>(step.first_slot) + i + 1});
    }
  }
  return segments;
}

class Misfit {
 public:
  Misfit(const CounterSamples& samples, size_t column, std::span<const StepSpans> steps)
      : samples_(samples), column_(column), segments_(segments_of(steps)) {
    for (const Segment& segment : segments_)
      num_slots_ = std::max(num_slots_, segment.slot + 1);
  }

  /// Sum of squares of what samples hold beyond the mean rates of the ops in them, a sample.
  double at(int64_t shift_ns) const {
    std::vector<double> amounts(num_slots_), times_ns(num_slots_);
    for_each_overlap(shift_ns, [&](size_t sample, size_t slot, double overlap_ns) {
      amounts[slot] += rate(sample) * overlap_ns;
      times_ns[slot] += overlap_ns;
    });
    std::vector<double> expected(samples_.size(), -1.0);
    for_each_overlap(shift_ns, [&](size_t sample, size_t slot, double overlap_ns) {
      expected[sample] = std::max(expected[sample], 0.0) + amounts[slot] / times_ns[slot] * overlap_ns;
    });
    double sum = 0.0;
    int64_t count = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] < 0.0) continue;
      sum += std::pow(samples_.value(i, column_) - expected[i], 2);
      ++count;
    }
    return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::infinity();
  }

 private:
  double rate(size_t sample) const {
    return samples_.value(sample, column_) /
           static_cast<double>(samples_.end_ns[sample] - samples_.begin_ns[sample]);
  }

  /// Calls `visit` for every op in every sample that lies among the segments wholly.
  template <class Visit>
  void for_each_overlap(int64_t shift_ns, const Visit& visit) const {
    size_t first = 0;
    for (size_t sample = 0; sample < samples_.size(); ++sample) {
      const int64_t begin_ns = samples_.begin_ns[sample] + shift_ns;
      const int64_t end_ns = samples_.end_ns[sample] + shift_ns;
      while (first < segments_.size() && segments_[first].end_ns <= begin_ns)
        ++first;
      if (first == segments_.size() || segments_.back().end_ns < end_ns) return;
      if (segments_[first].begin_ns > begin_ns) continue;
      for (size_t i = first; i < segments_.size() && segments_[i].begin_ns < end_ns; ++i) {
        const int64_t overlap_ns =
            std::min(end_ns, segments_[i].end_ns) - std::max(begin_ns, segments_[i].begin_ns);
        visit(sample, segments_[i].slot, static_cast<double>(overlap_ns));
      }
    }
  }

  const CounterSamples& samples_;
  const size_t column_;
  const std::vector<Segment> segments_;
  size_t num_slots_ = 1;
};

/// Where the parabola through three equally distant points is least, in their distance from the middle one.
double lowest(double left, double middle, double right) {
  const double curvature = left - 2.0 * middle + right;
  return curvature > 0.0 ? std::clamp(0.5 * (left - right) / curvature, -0.5, 0.5) : 0.0;
}

}  // namespace

int64_t clock_shift_ns(const CounterSamples& samples, size_t column, std::span<const StepSpans> steps,
                       int64_t most_ns) {
  if (samples.size() < 2 || steps.empty() || most_ns <= 0) return 0;
  const Misfit misfit(samples, column, steps);
  const int64_t step_ns = std::max<int64_t>(1, (samples.end_ns[0] - samples.begin_ns[0]) / 4);
  const int64_t reach = (most_ns + step_ns - 1) / step_ns;
  std::vector<double> values;
  for (int64_t i = -reach - 1; i <= reach + 1; ++i)
    values.push_back(misfit.at(i * step_ns));
  const auto best = std::min_element(values.begin() + 1, values.end() - 1);
  if (!std::isfinite(*best) || *best >= *std::max_element(values.begin(), values.end())) return 0;
  const auto at = best - values.begin() - reach - 1;
  const double between = lowest(*(best - 1), *best, *(best + 1));
  return std::clamp<int64_t>(
      static_cast<int64_t>(std::llround((static_cast<double>(at) + between) * static_cast<double>(step_ns))),
      -most_ns, most_ns);
}

}  // namespace minfer
