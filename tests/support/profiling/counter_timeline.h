#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/counters.h"
#include "profiling/counters/sample_attribution.h"

namespace minfer::test {

/// An op of a made-up device; its load is even while it runs.
struct TimelineOp {
  double us = 0.0;
  double read_bytes = 0.0;  ///< bytes of one run
  double sm_active = 0.0;
};

/// Ops of `low_us` to `high_us` (evenly on a log scale) that read at 0.05 to 4 TB/s.
inline std::vector<TimelineOp> random_ops(int count, double low_us, double high_us, std::mt19937& random) {
  std::uniform_real_distribution<double> length(std::log(low_us), std::log(high_us)), speed(0.05, 4.0),
      active(0.1, 1.0);
  std::vector<TimelineOp> ops;
  for (int i = 0; i < count; ++i) {
    const double us = std::exp(length(random));
    ops.push_back({us, us * speed(random) * 1e6, active(random)});
  }
  return ops;
}

struct TimelineOptions {
  int num_steps = 12;
  double jitter = 0.02;  ///< of a run's time
  double idle_us = 0.0;  ///< the most idle time between steps
  int64_t begin_ns = 1'000'000'000;
  int64_t interval_ns = 1'000;
  int64_t clock_ns = 0;  ///< how far the samples' clock is ahead of the ops'
  double noise = 0.0;    ///< of a sample's bytes, relative
};

/// The samples of a device that runs `ops` again and again.
struct Timeline {
  std::vector<StepSpans> steps;
  CounterSamples samples;
};

inline Timeline run_timeline(const std::vector<TimelineOp>& ops, const TimelineOptions& options,
                             std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> part;
  Timeline line;
  int64_t now_ns = options.begin_ns;
  for (int i = 0; i < options.num_steps; ++i) {
    now_ns += std::llround(part(random) * options.idle_us * 1e3);
    StepSpans step{.step = i, .first_slot = 0, .bounds_ns = {now_ns}};
    for (const TimelineOp& op : ops) {
      now_ns += std::max<int64_t>(1, std::llround(op.us * 1e3 * (1.0 + options.jitter * normal(random))));
      step.bounds_ns.push_back(now_ns);
    }
    line.steps.push_back(std::move(step));
  }
  CounterSamples& samples = line.samples;
  samples.counters = {Counter::dram_read_bytes, Counter::sm_active};
  size_t step = 0, op = 0;
  int64_t begin_ns = options.begin_ns - std::llround(part(random) * static_cast<double>(options.interval_ns));
  for (; begin_ns < now_ns; begin_ns += options.interval_ns) {
    const int64_t end_ns = begin_ns + options.interval_ns;
    double bytes = 0.0, active = 0.0;
    while (step < line.steps.size()) {
      const StepSpans& at = line.steps[step];
      const int64_t from_ns = std::max(begin_ns, at.bounds_ns[op]);
      const int64_t to_ns = std::min(end_ns, at.bounds_ns[op + 1]);
      const auto length_ns = static_cast<double>(at.bounds_ns[op + 1] - at.bounds_ns[op]);
      if (to_ns > from_ns) {
        bytes += ops[op].read_bytes * static_cast<double>(to_ns - from_ns) / length_ns;
        active += ops[op].sm_active * static_cast<double>(to_ns - from_ns);
      }
      if (at.bounds_ns[op + 1] > end_ns) break;
      op = (op + 1) % ops.size();
      if (op == 0) ++step;
    }
    samples.begin_ns.push_back(begin_ns + options.clock_ns);
    samples.end_ns.push_back(end_ns + options.clock_ns);
    samples.values.push_back(std::max(0.0, bytes * (1.0 + options.noise * normal(random))));
    samples.values.push_back(active / static_cast<double>(options.interval_ns));
  }
  return line;
}

}  // namespace minfer::test
