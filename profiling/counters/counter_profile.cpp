#include "profiling/counters/counter_profile.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/stamps.h"

namespace minfer {
namespace {

/// The largest offset of the samples' clock that is searched: less than half a layer of any model.
constexpr int64_t kMostShiftNs = 2'000;
constexpr int64_t kMostFittedShiftNs = 15'000;

/// The phase of an op's tokens in a step of this phase.
StepPhase phase_of_op(TokenScope scope, StepPhase step) {
  if (scope == TokenScope::decode) return StepPhase::decode;
  return scope == TokenScope::prefill ? StepPhase::prefill : step;
}

/// The mean of shares, each for its weight; NaN without any.
class WeightedMean {
 public:
  void add(double value, double weight) {
    if (!std::isfinite(value) || !(weight > 0.0)) return;
    sum_ += value * weight;
    weight_ += weight;
  }
  double value() const { return weight_ > 0.0 ? sum_ / weight_ : std::numeric_limits<double>::quiet_NaN(); }

 private:
  double sum_ = 0.0;
  double weight_ = 0.0;
};

}  // namespace

const OpInfo* CounterProfile::info_of(OpId op) const {
  return op >= 0 && op < std::ssize(ops_) ? &ops_[static_cast<size_t>(op)] : nullptr;
}

/// The record's times on the device's clock.
CounterProfile::Step CounterProfile::step_of(const StepRecord& record) {
  Step step{.step = record.step, .key = {}, .batch = record.batch, .bounds_ns = {}, .experts_read = {}};
  const StepStamps& stamps = record.stamps;
  for (const StepStamps::Stamp& stamp : stamps.ops) {
    step.key.ops.push_back(stamp.op);
    step.experts_read.push_back(stamp.experts_read);
    step.bounds_ns.push_back(stamp.begin_ns - stamps.clock_offset_ns);
  }
  step.bounds_ns.push_back(stamps.end_ns - stamps.clock_offset_ns);
  // Stamps of kernels that run side by side may be taken in another order.
  for (size_t i = 1; i < step.bounds_ns.size(); ++i)
    step.bounds_ns[i] = std::max(step.bounds_ns[i], step.bounds_ns[i - 1]);
  step.key.graph_batch = record.batch.graph_batch;
  if (step.key.graph_batch > 0 && record.batch.phase() == StepPhase::prefill) {
    step.key.prefill_tokens = record.batch.shape.prefill_tokens + record.batch.padded_tokens;
  } else if (step.key.graph_batch == 0) {
    step.key.decode_tokens = record.batch.shape.decode_tokens;
    step.key.prefill_tokens = record.batch.shape.prefill_tokens;
  } else if (const int32_t tokens = record.batch.shape.decode_tokens + record.batch.padded_tokens;
             tokens > step.key.graph_batch) {
    step.key.decode_tokens = tokens;  // a graph that checks drafts
  }
  return step;
}

CounterProfile::Works CounterProfile::works_of_all() const {
  Works works;
  int32_t num_slots = 0;
  for (const Window& window : windows_) {
    for (const Step& step : window.steps) {
      const auto [entry, is_new] = works.try_emplace(step.key);
      Work& work = entry->second;
      if (is_new) {
        work.first_slot = num_slots;
        work.batch = step.batch;
        work.counted_read_bytes.resize(step.key.ops.size());
        num_slots += static_cast<int32_t>(step.key.ops.size());
      }
      ++work.replays;
      if (&window == &windows_.back()) ++work.steps;
      for (size_t i = 0; i < step.key.ops.size(); ++i) {
        if (const OpInfo* info = info_of(step.key.ops[i])) {
          work.counted_read_bytes[i] +=
              static_cast<double>(op_work(*info, step.batch.shape, step.experts_read[i]).bytes_read);
        }
      }
    }
  }
  return works;
}

std::vector<StepSpans> CounterProfile::spans_of(const Window& window, const Works& works) {
  std::vector<StepSpans> spans;
  for (const Step& step : window.steps)
    spans.push_back({step.step, works.at(step.key).first_slot, step.bounds_ns});
  return spans;
}

std::vector<CounterStep> CounterProfile::whole_steps(const Window& window, int64_t interval_ns) const {
  std::vector<CounterStep> steps;
  const CounterSamples& samples = window.samples;
  for (size_t i = 0; i < window.steps.size(); ++i) {
    const Step& step = window.steps[i];
    const int64_t begin_ns = step.bounds_ns.front(), end_ns = step.bounds_ns.back();
    if (samples.size() == 0 || begin_ns < samples.begin_ns.front() || end_ns > samples.end_ns.back())
      continue;
    // A neighbour that ended (begins) at least a sample away leaves the sample at the step's end to the step.
    const auto is_far = [&](const Step& other, int64_t gap_ns) {
      return std::abs(other.step - step.step) == 1 && gap_ns >= interval_ns;
    };
    const bool alone_before =
        i > 0 && is_far(window.steps[i - 1], begin_ns - window.steps[i - 1].bounds_ns.back());
    const bool alone_after = i + 1 < window.steps.size() &&
                             is_far(window.steps[i + 1], window.steps[i + 1].bounds_ns.front() - end_ns);
    CounterStep& found = steps.emplace_back();
    found.step = step.step;
    found.us = us_of(end_ns - begin_ns);
    for (size_t column = 0; column < samples.counters.size(); ++column) {
      if (!counts_bytes(samples.counters[column])) continue;
      const CountedBytes bytes = bytes_between(samples, column, begin_ns, end_ns, alone_before, alone_after);
      if (bytes.covered <= 0.0) continue;  // no sample of it, which is not zero bytes
      found.measured[samples.counters[column]] = bytes.bytes;
      found.covered = std::min(bytes.covered, 1.0);
    }
    for (size_t k = 0; k < step.key.ops.size(); ++k) {
      if (const OpInfo* info = info_of(step.key.ops[k])) {
        const KernelWork work = op_work(*info, step.batch.shape, step.experts_read[k]);
        found.counted_read_bytes += work.bytes_read;
        found.counted_written_bytes += work.bytes_written;
      }
    }
  }
  return steps;
}

/// Runs of an op that no sample covered are taken to be like those of the same op in other layers.
std::vector<CounterOp> CounterProfile::ops_of(const WorkKey& key, const Work& work,
                                              std::span<const OpEstimate> estimates,
                                              const CounterSamples& columns) const {
  struct Group {
    CounterOp op;
    TokenScope scope;
    int32_t covered = 0;
    double squared_error = 0.0;
    std::array<WeightedMean, kAllCounters.size()> shares;
  };
  std::vector<Group> groups;
  const int lookups = columns.column(Counter::l2_throughput);
  for (size_t i = 0; i < key.ops.size(); ++i) {
    const OpInfo* info = info_of(key.ops[i]);
    if (info == nullptr) continue;
    const auto is_same = [&](const Group& group) {
      return group.op.op == info->name && group.scope == info->scope;
    };
    auto group = std::ranges::find_if(groups, is_same);
    if (group == groups.end()) {
      group = groups.insert(group, Group{.op = {}, .scope = info->scope, .shares = {}});
      group->op.op = info->name;
      group->op.phase = phase_of_op(info->scope, work.batch.phase());
    }
    const OpEstimate& estimate = estimates[static_cast<size_t>(work.first_slot) + i];
    CounterOp& op = group->op;
    ++op.calls;
    op.us += estimate.mean_ns * 1e-3;
    op.samples += estimate.samples;
    op.counted_read_bytes += work.counted_read_bytes[i] / static_cast<double>(work.replays);
    if (estimate.runs <= 0.0) continue;
    ++group->covered;
    for (size_t column = 0; column < columns.counters.size(); ++column) {
      const Counter counter = columns.counters[column];
      const double value = estimate.values[column];
      if (counter == Counter::dram_written_bytes) continue;
      if (counter == Counter::dram_read_bytes) group->squared_error += std::pow(estimate.read_error, 2);
      if (counts_bytes(counter)) {
        op.measured[counter] = (op.measured.has(counter) ? op.measured[counter] : 0.0) + value;
      } else {
        const bool is_of_lookups = counter == Counter::l2_hit && lookups >= 0;
        const double of = is_of_lookups ? estimate.values[static_cast<size_t>(lookups)] : 1.0;
        group->shares[static_cast<size_t>(counter)].add(value, estimate.mean_ns * of);
      }
    }
  }
  std::vector<CounterOp> ops;
  for (Group& group : groups) {
    const double all = group.covered > 0 ? static_cast<double>(group.op.calls) / group.covered : 1.0;
    for (const Counter counter : columns.counters) {
      if (counts_bytes(counter)) {
        group.op.measured[counter] *= all;
      } else {
        // For an op within a single sample the share is an estimate, which may exceed the possible value.
        const double share = group.shares[static_cast<size_t>(counter)].value();
        group.op.measured[counter] = std::isnan(share) ? share : std::clamp(share, 0.0, 1.0);
      }
    }
    if (group.op.measured.has(Counter::dram_read_bytes))
      group.op.read_error_bytes = std::sqrt(group.squared_error) * all;
    ops.push_back(std::move(group.op));
  }
  return ops;
}

/// Lets the window in, and the oldest one out.
CounterProfile::Window& CounterProfile::keep(CounterSamples samples, std::span<const StepRecord> records) {
  if (!windows_.empty() && windows_.back().samples.counters != samples.counters) windows_.clear();
  if (windows_.size() == kWindows) windows_.pop_front();
  Window& window = windows_.emplace_back(Window{std::move(samples), {}});
  int64_t end_ns = std::numeric_limits<int64_t>::min();
  for (const StepRecord& record : records) {
    if (record.stamps.ops.empty()) continue;
    Step step = step_of(record);
    if (step.bounds_ns.front() < end_ns) continue;
    end_ns = step.bounds_ns.back();
    window.steps.push_back(std::move(step));
  }
  return window;
}

/// Returns the shift of the window's samples; moves the samples if their clock is not the stamps' clock.
int64_t CounterProfile::align(Window& window, const Works& works) {
  const int reads = window.samples.column(Counter::dram_read_bytes);
  if (reads < 0) return 0;
  const bool is_fitted = window.samples.clock == SampleClock::fitted;
  const int64_t shift_ns = clock_shift_ns(window.samples, static_cast<size_t>(reads), spans_of(window, works),
                                          is_fitted ? kMostFittedShiftNs : kMostShiftNs);
  if (is_fitted) {
    const auto move = [&](int64_t time_ns) { return time_ns + shift_ns; };
    std::ranges::transform(window.samples.begin_ns, window.samples.begin_ns.begin(), move);
    std::ranges::transform(window.samples.end_ns, window.samples.end_ns.begin(), move);
  }
  return shift_ns;
}

CounterWindow CounterProfile::add(CounterSamples samples, std::span<const StepRecord> records,
                                  const CounterSetup& setup) {
  const int64_t began_ns = now_ns();
  CounterWindow found;
  found.interval_ns = setup.interval_ns;
  found.clock = samples.clock;
  found.samples = std::ssize(samples.begin_ns);
  found.lost = samples.lost;
  found.counters = samples.counters;
  if (std::exchange(is_first_, false)) found.left_out = setup.left_out;
  const int64_t asked_ns = samples.asked_ns;
  found.start_ms = samples.start_ms;
  found.stop_ms = samples.stop_ms;
  found.drain_ms = samples.drain_ms;

  Window& window = keep(std::move(samples), records);
  const Works works = works_of_all();
  found.clock_shift_ns = align(window, works);
  if (window.samples.size() > 0) {
    // Only steps tell how the device's clock lies to the host's.
    found.begin_ns =
        records.empty()
            ? asked_ns + static_cast<int64_t>(found.start_ms * 1e6)
            : std::max<int64_t>(0, window.samples.begin_ns.front() + records.back().stamps.clock_offset_ns);
    found.us = us_of(window.samples.end_ns.back() - window.samples.begin_ns.front());
  }
  SampleAttribution attribution(window.samples.counters);
  for (const Window& each : windows_)
    attribution.add_window(each.samples, spans_of(each, works));
  const std::vector<OpEstimate> estimates = attribution.estimate();
  found.steps = whole_steps(window, setup.interval_ns);
  for (const auto& [key, work] : works) {
    if (work.steps == 0) continue;
    found.work.push_back({.phase = work.batch.phase(),
                          .graph_batch = key.graph_batch,
                          .steps = work.steps,
                          .replays = work.replays,
                          .ops = ops_of(key, work, estimates, window.samples)});
  }
  found.attribution_ms = static_cast<double>(now_ns() - began_ns) * 1e-6;
  return found;
}

}  // namespace minfer
