#include "profiling/report/outliers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace minfer {
namespace {

constexpr size_t kTimesShown = 5;
constexpr double kDiffers = 0.1;  // of the larger one

/// The features of every step, in front of the times of its ops. Times come first.
struct Fixed {
  const char* name;
  double (*of)(const StepSummary& step);
};

double host_us(const StepSummary& step) {
  double us = 0.0;
  for (size_t span = 0; span < kHostSpans; ++span) {
    if (static_cast<HostSpan>(span) != HostSpan::wait) us += step.host_us[span];
  }
  return us;
}

constexpr size_t kFixedTimes = 2;
constexpr std::array kFixed{
    Fixed{"no op runs", [](const StepSummary& step) { return step.gpu_idle_us; }},
    Fixed{"the host works", host_us},
    Fixed{"prompt tokens", [](const StepSummary& step) { return double(step.batch.shape.prefill_tokens); }},
    Fixed{"decoding sequences",
          [](const StepSummary& step) { return double(step.batch.shape.decode_sequences); }},
    Fixed{"% with prompts",
          [](const StepSummary& step) { return step.batch.shape.prefill_tokens > 0 ? 100.0 : 0.0; }},
    Fixed{"% replaying a graph",
          [](const StepSummary& step) { return step.batch.graph_batch > 0 ? 100.0 : 0.0; }},
    Fixed{"requests waiting", [](const StepSummary& step) { return double(step.batch.waiting); }},
    Fixed{"preempted", [](const StepSummary& step) { return double(step.batch.preempted); }},
    Fixed{"KV blocks in use", [](const StepSummary& step) { return double(step.batch.kv_blocks_used); }},
};

size_t hundredth(int64_t steps) {
  return static_cast<size_t>(steps + 99) / 100;
}

bool differs(const StepFeature& feature) {
  return std::abs(feature.slowest - feature.all) > kDiffers * std::max(feature.slowest, feature.all);
}

}  // namespace

void OutlierSum::fill(const StepSummary& step, std::vector<float>& values) {
  values.assign(kFixed.size() + names_.size(), 0.0f);
  for (size_t i = 0; i < kFixed.size(); ++i)
    values[i] = static_cast<float>(kFixed[i].of(step));
  for (const OpSummary& op : step.ops) {
    const auto [place, is_new] = places_.try_emplace(op.op, values.size());
    if (is_new) {
      names_.push_back(op.op);
      values.push_back(0.0f);
    }
    values[place->second] += static_cast<float>(op.us);
  }
}

void OutlierSum::add(const StepSummary& step) {
  ++steps_;
  wall_us_ += step.wall_us;
  fill(step, next_.values);
  sums_.resize(std::max(sums_.size(), next_.values.size()));
  for (size_t i = 0; i < next_.values.size(); ++i)
    sums_[i] += static_cast<double>(next_.values[i]);
  const size_t wanted = std::clamp(hundredth(steps_), kKept, kMost);
  next_.wall_us = step.wall_us;
  if (slowest_.size() < wanted) {
    slowest_.push_back(next_);
  } else {
    if (step.wall_us <= slowest_.front().wall_us) return;
    std::ranges::pop_heap(slowest_, is_longer);
    std::swap(slowest_.back(), next_);
  }
  std::ranges::push_heap(slowest_, is_longer);
}

Outliers OutlierSum::result() const {
  Outliers outliers;
  if (steps_ < kFewestSteps) return outliers;
  std::vector<const Step*> steps;
  for (const Step& step : slowest_)
    steps.push_back(&step);
  std::ranges::sort(steps, std::ranges::greater{}, &Step::wall_us);
  steps.resize(std::min(steps.size(), hundredth(steps_)));
  outliers.steps = std::ssize(steps);
  outliers.from_us = steps.back()->wall_us;
  std::vector<double> slow(sums_.size());
  double slow_us = 0.0;
  for (const Step* step : steps) {
    slow_us += step->wall_us;
    for (size_t i = 0; i < step->values.size(); ++i)
      slow[i] += static_cast<double>(step->values[i]);
  }
  outliers.share = wall_us_ > 0.0 ? slow_us / wall_us_ : 0.0;
  for (size_t i = 0; i < sums_.size(); ++i) {
    const bool is_time = i < kFixedTimes || i >= kFixed.size();
    const StepFeature feature{.name = i < kFixed.size() ? kFixed[i].name : names_[i - kFixed.size()],
                              .slowest = slow[i] / static_cast<double>(steps.size()),
                              .all = sums_[i] / static_cast<double>(steps_)};
    if (differs(feature)) (is_time ? outliers.times : outliers.shapes).push_back(feature);
  }
  std::ranges::stable_sort(outliers.times, std::ranges::greater{},
                           [](const StepFeature& time) { return std::abs(time.slowest - time.all); });
  if (outliers.times.size() > kTimesShown) outliers.times.resize(kTimesShown);
  return outliers;
}

Table outliers_table(const Outliers& outliers) {
  Table table{
      fmt::format(
          "What differs in the slowest hundredth ({} steps from {} ms, {} % of the time; means of a step)",
          outliers.steps, ms(outliers.from_us), percent(outliers.share, 1.0)),
      {"", "slowest", "all"}};
  for (const StepFeature& time : outliers.times)
    table.add(time.name + " (us)", time.slowest, time.all);
  for (const StepFeature& shape : outliers.shapes)
    table.add(shape.name, shape.slowest, shape.all);
  return table;
}

}  // namespace minfer
