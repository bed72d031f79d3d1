#include "profiling/report/aggregate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace minfer {
namespace {

struct OpSamples {
  OpAggregate sum;
  std::array<double, 3> us_by_bound{};
  std::vector<double> call_us;
};

void add(OpSamples& samples, const OpSummary& op) {
  OpAggregate& sum = samples.sum;
  sum.op = op.op;
  sum.calls += op.calls;
  sum.us += op.us;
  sum.bytes += op.bytes;
  sum.flops += op.flops;
  sum.floor_us += op.floor_us;
  sum.idle_us += op.idle_us;
  for (const int32_t launch : op.launches)
    ++sum.launches[launch];
  samples.us_by_bound[static_cast<size_t>(op.bound)] += op.us;
  if (op.calls > 0) samples.call_us.push_back(op.us / op.calls);
}

OpAggregate finish(OpSamples& samples) {
  const auto most = std::ranges::max_element(samples.us_by_bound);
  samples.sum.bound = static_cast<Bound>(most - samples.us_by_bound.begin());
  samples.sum.call_us = statistics_of(std::move(samples.call_us));
  samples.sum.call_us.mean = samples.sum.mean_us();
  return std::move(samples.sum);
}

struct StepSamples {
  StepGroup group;
  std::vector<double> wall_us;
};

void add(StepSamples& samples, const StepSummary& step) {
  StepGroup& group = samples.group;
  ++group.steps;
  group.wall_us += step.wall_us;
  group.gpu_us += step.gpu_us;
  group.idle_host_us += step.idle_host_us;
  group.idle_device_us += step.idle_device_us;
  group.late_ops += step.late_ops;
  for (size_t i = 0; i < kHostSpans; ++i)
    group.host_us[i] += step.host_us[i];
  group.prefill_tokens += step.batch.shape.prefill_tokens;
  group.decode_tokens += step.batch.shape.decode_tokens;
  samples.wall_us.push_back(step.wall_us);
}

StepGroup finish(StepSamples& samples) {
  samples.group.step_us = statistics_of(std::move(samples.wall_us));
  return samples.group;
}

void add(PhaseAggregate& sum, const PhaseTime& time) {
  sum.us += time.us;
  sum.tokens += time.tokens;
}

}  // namespace

Statistics statistics_of(std::vector<double> sample) {
  if (sample.empty()) return {};
  std::ranges::sort(sample);
  const size_t n = sample.size();
  Statistics result;
  result.min = sample.front();
  result.max = sample.back();
  result.median = n % 2 == 1 ? sample[n / 2] : 0.5 * (sample[n / 2 - 1] + sample[n / 2]);
  result.mean = std::accumulate(sample.begin(), sample.end(), 0.0) / static_cast<double>(n);
  double squares = 0.0;
  for (const double value : sample)
    squares += (value - result.mean) * (value - result.mean);
  if (n > 1) result.sd = std::sqrt(squares / static_cast<double>(n - 1));
  return result;
}

double StepGroup::other_us() const {
  return std::max(0.0, wall_us - std::accumulate(host_us.begin(), host_us.end(), gpu_us));
}

double StepGroup::between_steps_us() const {
  return std::max(0.0, wall_us - gpu_us - idle_host_us - idle_device_us);
}

Aggregate aggregate(std::span<const StepSummary> steps, std::optional<StepPhase> phase) {
  Aggregate result;
  StepSamples all;
  std::array<StepSamples, 3> by_phase;
  std::map<std::string, OpSamples> ops;
  double attributed_us = 0.0;
  double least_attributed = 1.0;
  for (const StepSummary& step : steps) {
    result.dropped = std::max(result.dropped, step.dropped);
    if (phase && step.phase() != *phase) continue;
    add(all, step);
    add(by_phase[static_cast<size_t>(step.phase())], step);
    add(result.prefill, step.prefill);
    add(result.decode, step.decode);
    for (const OpSummary& op : step.ops)
      add(ops[op.op], op);
    attributed_us += step.attributed * step.wall_us;
    least_attributed = std::min(least_attributed, step.attributed);
    ++result.attributed_by[std::string(step.attributed_by())];
  }
  result.all = finish(all);
  for (size_t i = 0; i < by_phase.size(); ++i)
    result.by_phase[i] = finish(by_phase[i]);
  for (auto& [op, samples] : ops)
    result.ops.push_back(finish(samples));
  std::ranges::stable_sort(result.ops, std::ranges::greater{}, &OpAggregate::us);
  if (result.all.wall_us > 0.0) {
    result.attributed = attributed_us / result.all.wall_us;
    result.least_attributed = least_attributed;
  }
  return result;
}

}  // namespace minfer
