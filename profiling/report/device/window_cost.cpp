#include <algorithm>
#include <cmath>

#include "profiling/report/device/counters_report.h"

namespace minfer {
namespace {

// A mixed load has a kind for nearly every step; windows are of its frequent ones.
constexpr size_t kMostKinds = 4'096;

/// Steps before or behind another.
struct NeighbourSide {
  std::vector<double> us;
  double distance = 0.0;  ///< sum, in steps

  double mean_distance() const { return distance / static_cast<double>(us.size()); }
  /// 0: there are none. Orders `us`.
  double median_us() {
    if (us.empty()) return 0.0;
    std::ranges::sort(us);
    return (us[us.size() / 2] + us[(us.size() - 1) / 2]) / 2.0;
  }
};

}  // namespace

/// The time of the neighbours without a window, interpolated at the step's place; 0: it has none of its kind.
double WindowCostSum::neighbours_us(size_t place) const {
  const Step& step = recent_[place];
  const auto side = [&](size_t begin, size_t end) {
    NeighbourSide its;
    for (size_t i = begin; i < end; ++i) {
      if (recent_[i].is_inside || recent_[i].kind != step.kind) continue;
      its.us.push_back(recent_[i].wall_us);
      its.distance += std::abs(static_cast<double>(i) - static_cast<double>(place));
    }
    return its;
  };
  NeighbourSide before = side(place - std::min(place, kNeighbours), place);
  NeighbourSide behind = side(place + 1, std::min(recent_.size(), place + 1 + kNeighbours));
  if (before.us.empty()) return behind.median_us();
  if (behind.us.empty()) return before.median_us();
  const double before_us = before.median_us();
  const double share = before.mean_distance() / (before.mean_distance() + behind.mean_distance());
  return before_us + (behind.median_us() - before_us) * share;
}

void WindowCostSum::settle(Kinds& kinds, size_t place) const {
  const Step& step = recent_[place];
  if (kinds.size() >= kMostKinds && !kinds.contains(step.kind)) return;
  Times& times = kinds[step.kind];
  if (!step.is_inside) {
    ++times.outside;
    return;
  }
  const double expected_us = neighbours_us(place);
  if (expected_us <= 0.0) return;
  times.inside_us.add(step.wall_us);
  times.ratio.add(step.wall_us / expected_us);
}

void WindowCostSum::add(const StepSummary& step) {
  const BatchShape& shape = step.batch.shape;
  const auto begin_ns = static_cast<double>(step.start_ns);
  Step& added =
      recent_.emplace_back(Step{.kind = {step.batch.graph_batch, shape.decode_tokens, shape.prefill_tokens},
                                .begin_ns = begin_ns,
                                .end_ns = begin_ns + step.wall_us * 1e3,
                                .wall_us = step.wall_us});
  for (const Span& window : windows_)
    added.is_inside = added.is_inside || window.overlaps(added);
  if (recent_.size() - num_settled_ <= kRecentSteps) return;
  settle(kinds_, num_settled_);
  if (num_settled_ < kNeighbours) {
    ++num_settled_;
  } else {
    recent_.pop_front();
  }
}

void WindowCostSum::add(const CounterWindow& window) {
  if (!window.error.empty()) return;
  const auto open_ns = static_cast<double>(window.begin_ns);
  const Span span{.begin_ns = open_ns - window.start_ms * 1e6,
                  .end_ns = open_ns + window.us * 1e3 + window.stop_ms * 1e6};
  for (Step& step : recent_)
    step.is_inside = step.is_inside || span.overlaps(step);
  windows_.push_back(span);
  if (windows_.size() > kRecentWindows) windows_.pop_front();
}

WindowCost WindowCostSum::result() const {
  Kinds kinds = kinds_;
  for (size_t place = num_settled_; place < recent_.size(); ++place)
    settle(kinds, place);
  WindowCost cost;
  for (const auto& [kind, times] : kinds) {
    if (times.outside == 0 || times.ratio.count() <= cost.inside) continue;
    const double inside_us = times.inside_us.quantile(0.5);
    cost = {times.ratio.count(), times.outside, inside_us, inside_us / times.ratio.quantile(0.5)};
  }
  return cost;
}

}  // namespace minfer
