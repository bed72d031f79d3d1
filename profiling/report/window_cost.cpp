#include "profiling/report/counters_report.h"

namespace minfer {
namespace {

constexpr size_t kMostKinds =
    4'096;  // a mixed load has a kind for nearly every step; windows are of its frequent ones

}  // namespace

void WindowCostSum::settle(Kinds& kinds, const Step& step) {
  if (kinds.size() >= kMostKinds && !kinds.contains(step.kind)) return;
  Times& times = kinds[step.kind];
  (step.is_inside ? times.inside : times.outside).add(step.wall_us);
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
  if (recent_.size() <= kRecentSteps) return;
  settle(kinds_, recent_.front());
  recent_.pop_front();
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
  for (const Step& step : recent_)
    settle(kinds, step);
  WindowCost cost;
  for (const auto& [kind, times] : kinds) {
    if (times.outside.count() == 0 || times.inside.count() <= cost.inside) continue;
    cost = {times.inside.count(), times.outside.count(), times.inside.quantile(0.5),
            times.outside.quantile(0.5)};
  }
  return cost;
}

WindowCost window_cost(std::span<const CounterWindow> windows, std::span<const StepSummary> steps) {
  WindowCostSum sum;
  for (const StepSummary& step : steps)
    sum.add(step);
  for (const CounterWindow& window : windows)
    sum.add(window);
  return sum.result();
}

}  // namespace minfer
