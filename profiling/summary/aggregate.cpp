#include "profiling/summary/aggregate.h"

#include <cmath>
#include <numeric>
#include <utility>

namespace minfer {
namespace {

void add_time(PhaseTime& sum, const PhaseTime& time) {
  sum.us += time.us;
  sum.tokens += time.tokens;
}

}  // namespace

void PredictionErrors::add(const StepSummary& step) {
  if (step.batch.predicted_ns <= 0 || step.wall_us <= 0.0) return;
  const double expected_us = us_of(step.batch.predicted_ns);
  longer_ += step.wall_us > expected_us;
  // Bins are by powers of two: what is finer or coarser than anybody asks for would only take memory.
  errors_.add(std::clamp(std::abs(step.wall_us - expected_us) / step.wall_us, 1e-3, 100.0));
}

PredictionError PredictionErrors::result() const {
  return {.steps = errors_.count(),
          .longer = longer_,
          .median = errors_.quantile(0.5),
          .p95 = errors_.quantile(0.95)};
}

double StepGroup::other_us() const {
  return std::max(0.0, wall_us - std::accumulate(host_us.begin(), host_us.end(), gpu_us));
}

double StepGroup::between_steps_us() const {
  return std::max(0.0, wall_us - gpu_us - idle_host_us - idle_device_us);
}

void Aggregator::AttributedSum::add(const RecentStep& step) {
  us += step.attributed * step.wall_us;
  least = std::min(least, step.attributed);
  auto steps = by.find(step.by);
  if (steps == by.end()) steps = by.emplace(step.by, 0).first;
  ++steps->second;
}

void Aggregator::add(GroupSum& sum, const StepSummary& step) {
  StepGroup& group = sum.group;
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
  sum.wall_us.add(step.wall_us);
  sum.errors.add(step);
}

void Aggregator::add(OpSum& each, const OpSummary& op) {
  OpAggregate& sum = each.sum;
  sum.calls += op.calls;
  sum.us += op.us;
  sum.bytes += static_cast<double>(op.bytes);
  sum.flops += static_cast<double>(op.flops);
  sum.floor_us += op.floor_us;
  sum.idle_us += op.idle_us;
  sum.waited_us += op.waited_us;
  sum.link_bytes += static_cast<double>(op.link_bytes);
  if (op.experts_read >= 0) {
    sum.experts_read += op.experts_read;
    sum.calls_with_experts += op.calls;
  }
  for (const int32_t launch : op.launches) {
    if (launch != each.last_launch) {
      each.last_launch = launch;
      each.last_launch_steps = &sum.launches[launch];
    }
    ++*each.last_launch_steps;
  }
  each.us_by_bound[static_cast<size_t>(op.bound)] += op.us;
  if (op.calls > 0) each.call_us.add(op.us / op.calls);
}

void Aggregator::add(OpSum& sum, const OpSum& other) {
  sum.sum.op = other.sum.op;
  sum.sum.calls += other.sum.calls;
  sum.sum.us += other.sum.us;
  sum.sum.bytes += other.sum.bytes;
  sum.sum.flops += other.sum.flops;
  sum.sum.floor_us += other.sum.floor_us;
  sum.sum.idle_us += other.sum.idle_us;
  sum.sum.waited_us += other.sum.waited_us;
  sum.sum.link_bytes += other.sum.link_bytes;
  sum.sum.experts_read += other.sum.experts_read;
  sum.sum.calls_with_experts += other.sum.calls_with_experts;
  for (const auto& [launch, steps] : other.sum.launches)
    sum.sum.launches[launch] += steps;
  for (size_t i = 0; i < sum.us_by_bound.size(); ++i)
    sum.us_by_bound[i] += other.us_by_bound[i];
  sum.call_us.add(other.call_us);
}

OpAggregate Aggregator::finished(const OpSum& each) {
  OpAggregate sum = each.sum;
  sum.bound = static_cast<Bound>(std::ranges::max_element(each.us_by_bound) - each.us_by_bound.begin());
  sum.call_us = each.call_us.statistics();
  sum.call_us.mean = sum.mean_us();
  return sum;
}

Aggregator::OpSum& Aggregator::sum_of(const OpSummary& op, size_t place) {
  if (place >= by_place_.size()) by_place_.resize(place + 1, nullptr);
  OpSum*& sum = by_place_[place];
  if (sum == nullptr || sum->phase != op.phase || sum->sum.op != op.op) {
    sum = &ops_[{op.op, op.phase}];
    sum->sum.op = op.op;
    sum->phase = op.phase;
  }
  return *sum;
}

void Aggregator::add(const StepSummary& step) {
  set_dropped(step.dropped);
  add(all_, step);
  add(by_phase_[static_cast<size_t>(step.phase())], step);
  add_time(result_.prefill, step.prefill);
  add_time(result_.decode, step.decode);
  result_.disk += step.batch.disk;
  for (size_t i = 0; i < step.ops.size(); ++i)
    add(sum_of(step.ops[i], i), step.ops[i]);
  if (step.on_device && step.idle_source == IdleSource::none) ++result_.by_begin_stamps;
  // A number that does not ascend begins another recording: kernels that follow are of that.
  const bool starts_again = !recent_.empty() && step.step <= recent_.back().step;
  while (!recent_.empty() && (starts_again || recent_.size() >= kRecentSteps)) {
    attributed_.add(recent_.front());
    recent_.pop_front();
  }
  recent_.push_back({step.step, step.wall_us, step.best_attributed(), step.best_attributed_by()});
}

void Aggregator::add(const StepKernels& kernels) {
  if (!kernels.is_whole() || !is_recent(kernels.step)) return;
  const auto found = std::ranges::lower_bound(recent_, kernels.step, {}, &RecentStep::step);
  if (found->wall_us <= 0.0) return;
  found->attributed = std::min(1.0, kernels.attributed_us / found->wall_us);
  found->by = kByKernels;
}

bool Aggregator::is_recent(int64_t step) const {
  const auto found = std::ranges::lower_bound(recent_, step, {}, &RecentStep::step);
  return found != recent_.end() && found->step == step;
}

Aggregate Aggregator::result() const {
  Aggregate result = result_;
  const auto finished_group = [](const GroupSum& sum) {
    StepGroup group = sum.group;
    group.step_us = sum.wall_us.statistics();
    group.prediction = sum.errors.result();
    return group;
  };
  result.all = finished_group(all_);
  for (size_t i = 0; i < by_phase_.size(); ++i)
    result.by_phase[i] = finished_group(by_phase_[i]);
  std::map<std::string, OpSum> ops;
  for (const auto& [key, sum] : ops_) {
    result.phase_ops.push_back({sum.phase, finished(sum)});
    add(ops[key.first], sum);
  }
  for (const auto& [op, sum] : ops)
    result.ops.push_back(finished(sum));
  std::ranges::stable_sort(result.ops, std::ranges::greater{}, &OpAggregate::us);
  std::ranges::stable_sort(result.phase_ops, std::ranges::greater{},
                           [](const PhaseOp& op) { return op.sum.us; });
  AttributedSum attributed = attributed_;
  for (const RecentStep& step : recent_)
    attributed.add(step);
  result.attributed_by = std::move(attributed.by);
  if (result.all.wall_us > 0.0) {
    result.attributed = attributed.us / result.all.wall_us;
    result.least_attributed = attributed.least;
  }
  return result;
}

size_t Aggregator::bytes() const {
  size_t bytes = recent_.size() * sizeof(RecentStep) + all_.wall_us.bytes() + all_.errors.bytes();
  for (const GroupSum& sum : by_phase_)
    bytes += sum.wall_us.bytes() + sum.errors.bytes();
  for (const auto& [op, sum] : ops_)
    bytes +=
        sizeof(sum) + sum.call_us.bytes() + sum.sum.launches.size() * sizeof(std::pair<int32_t, int64_t>);
  return bytes;
}

}  // namespace minfer
