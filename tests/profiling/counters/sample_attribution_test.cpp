// Samples of a made-up device whose ops' bytes are known.
#include "profiling/counters/sample_attribution.h"

#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "kernels/base/error_types.h"
#include "tests/support/profiling/counter_timeline.h"

namespace minfer {
namespace {

using test::random_ops;
using test::run_timeline;
using test::Timeline;
using test::TimelineOp;
using test::TimelineOptions;

constexpr double kMiB = 1 << 20;

std::vector<OpEstimate> estimate_of(const Timeline& line) {
  SampleAttribution attribution(line.samples.counters);
  attribution.add_window(line.samples, line.steps);
  return attribution.estimate();
}

/// The largest error of an op's bytes.
double worst_mib(const std::vector<TimelineOp>& ops, const std::vector<OpEstimate>& estimates) {
  double worst = 0.0;
  for (size_t i = 0; i < ops.size(); ++i)
    worst = std::max(worst, std::abs(estimates[i].values[0] - ops[i].read_bytes) / kMiB);
  return worst;
}

void erase_samples(CounterSamples& samples, size_t first, size_t count) {
  const auto columns = static_cast<std::ptrdiff_t>(samples.counters.size());
  const auto begin = static_cast<std::ptrdiff_t>(first), end = static_cast<std::ptrdiff_t>(first + count);
  samples.begin_ns.erase(samples.begin_ns.begin() + begin, samples.begin_ns.begin() + end);
  samples.end_ns.erase(samples.end_ns.begin() + begin, samples.end_ns.begin() + end);
  samples.values.erase(samples.values.begin() + begin * columns, samples.values.begin() + end * columns);
}

TEST(SampleAttribution, FindsShortOpsFromSamplesOfAMicrosecond) {
  std::mt19937 random(1);
  for (int round = 0; round < 3; ++round) {
    const auto ops = random_ops(300, 2.0, 7.0, random);
    EXPECT_LT(worst_mib(ops, estimate_of(run_timeline(ops, {}, random))), 0.0005);
  }
}

TEST(SampleAttribution, FindsShortOpsFromSamplesOfTwoMicroseconds) {
  std::mt19937 random(2);
  for (int round = 0; round < 3; ++round) {
    const auto ops = random_ops(300, 2.0, 7.0, random);
    EXPECT_LT(worst_mib(ops, estimate_of(run_timeline(ops, {.interval_ns = 2'000}, random))), 0.005);
  }
}

TEST(SampleAttribution, FindsOpsOfAllLengthsWithIdleTimeBetweenSteps) {
  std::mt19937 random(3);
  for (const int64_t interval_ns : {1'000, 2'000}) {
    const auto ops = random_ops(200, 1.0, 500.0, random);
    const Timeline line = run_timeline(ops, {.idle_us = 20.0, .interval_ns = interval_ns}, random);
    EXPECT_LT(worst_mib(ops, estimate_of(line)), interval_ns == 1'000 ? 0.02 : 0.1);
  }
}

// The purpose of the iteration: if bytes are divided by time alone, short ops get their neighbours' bytes.
TEST(SampleAttribution, IsBetterThanDividingByTime) {
  std::mt19937 random(4);
  const auto ops = random_ops(300, 2.0, 7.0, random);
  const Timeline line = run_timeline(ops, {}, random);
  std::vector<double> by_time(ops.size());
  size_t sample = 0;
  for (const StepSpans& step : line.steps) {
    for (size_t i = 0; i < ops.size(); ++i) {
      while (line.samples.end_ns[sample] <= step.bounds_ns[i])
        ++sample;
      for (size_t s = sample; s < line.samples.size() && line.samples.begin_ns[s] < step.bounds_ns[i + 1];
           ++s) {
        const int64_t overlap_ns = std::min(line.samples.end_ns[s], step.bounds_ns[i + 1]) -
                                   std::max(line.samples.begin_ns[s], step.bounds_ns[i]);
        by_time[i] += line.samples.value(s, 0) * static_cast<double>(overlap_ns) / 1e3;
      }
    }
  }
  double worst = 0.0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const double bytes = by_time[i] / static_cast<double>(line.steps.size());
    worst = std::max(worst, std::abs(bytes - ops[i].read_bytes) / kMiB);
  }
  EXPECT_GT(worst, 100.0 * worst_mib(ops, estimate_of(line)));
}

TEST(SampleAttribution, GivesAwayExactlyWhatWasCounted) {
  std::mt19937 random(5);
  const auto ops = random_ops(50, 1.0, 40.0, random);
  Timeline line = run_timeline(ops, {.idle_us = 5.0, .noise = 0.05}, random);
  erase_samples(line.samples, line.samples.size() - 1, 1);  // the last sample extends beyond the last step
  erase_samples(line.samples, 0, 1);
  const std::vector<OpEstimate> estimates = estimate_of(line);
  double given = 0.0, counted = 0.0;
  for (const OpEstimate& op : estimates)
    given += op.values[0] * op.runs;
  for (size_t i = 0; i < line.samples.size(); ++i)
    counted += line.samples.value(i, 0);
  EXPECT_NEAR(given / counted, 1.0, 1e-3);  // the rest is of idle time, which got some from noise
}

TEST(SampleAttribution, AClockThatIsOffCostsItsTimesTheSpeed) {
  std::mt19937 random(6);
  const auto ops = random_ops(300, 2.0, 7.0, random);
  const Timeline line = run_timeline(ops, {.clock_ns = 30}, random);
  EXPECT_LT(worst_mib(ops, estimate_of(line)), 30e-9 * 4e12 / kMiB * 1.1);
}

TEST(SampleAttribution, LostSamplesCostNothing) {
  std::mt19937 random(7);
  const auto ops = random_ops(100, 2.0, 30.0, random);
  Timeline line = run_timeline(ops, {}, random);
  erase_samples(line.samples, line.samples.size() / 2, 40);
  erase_samples(line.samples, line.samples.size() / 3, 1);
  const std::vector<OpEstimate> estimates = estimate_of(line);
  EXPECT_LT(worst_mib(ops, estimates), 0.002);
  const auto runs = [](double sum, const OpEstimate& op) { return sum + op.runs; };
  EXPECT_LT(std::accumulate(estimates.begin(), estimates.end(), 0.0, runs), 100.0 * 12.0 - 1.0);
}

TEST(SampleAttribution, StepsThatTheWindowCutsCountForTheirPart) {
  std::mt19937 random(8);
  const auto ops = random_ops(100, 2.0, 30.0, random);
  Timeline line = run_timeline(ops, {.num_steps = 14}, random);
  const size_t a_step = line.samples.size() / 14;
  erase_samples(line.samples, line.samples.size() - a_step / 2, a_step / 2);
  erase_samples(line.samples, 0, a_step / 3);
  const std::vector<OpEstimate> estimates = estimate_of(line);
  EXPECT_LT(worst_mib(ops, estimates), 0.002);
  EXPECT_NEAR(estimates.front().runs, 13.0, 0.6);
}

TEST(SampleAttribution, TimeBesideAStepThatIsMissingIsNotIdle) {
  std::mt19937 random(9);
  const auto ops = random_ops(40, 2.0, 30.0, random);
  Timeline line = run_timeline(ops, {.num_steps = 20, .idle_us = 10.0}, random);
  line.steps.erase(line.steps.begin() + 9);  // its record was dropped: its bytes belong to no step
  EXPECT_LT(worst_mib(ops, estimate_of(line)), 0.002);
}

TEST(SampleAttribution, KeepsStepsOfDifferentWorkApart) {
  std::mt19937 random(10);
  const auto decode = random_ops(40, 2.0, 30.0, random);
  const auto prefill = random_ops(20, 5.0, 80.0, random);
  SampleAttribution attribution({Counter::dram_read_bytes, Counter::sm_active});
  for (int window = 0; window < 3; ++window) {
    attribution.add_window(run_timeline(decode, {}, random).samples, {});
    Timeline line = run_timeline(decode, {}, random);
    attribution.add_window(line.samples, line.steps);
    line = run_timeline(prefill, {.num_steps = 5}, random);
    for (StepSpans& step : line.steps)
      step.first_slot = 40;
    attribution.add_window(line.samples, line.steps);
  }
  const std::vector<OpEstimate> estimates = attribution.estimate();
  ASSERT_EQ(estimates.size(), 60u);
  EXPECT_LT(worst_mib(decode, estimates), 0.002);
  EXPECT_LT(worst_mib(prefill, {estimates.begin() + 40, estimates.end()}), 0.02);
  EXPECT_EQ(attribution.num_steps(), 3u * (12 + 5));
}

TEST(SampleAttribution, ErrorsAreAsLargeAsTheySay) {
  std::mt19937 random(11);
  const auto ops = random_ops(300, 2.0, 40.0, random);
  const std::vector<OpEstimate> estimates =
      estimate_of(run_timeline(ops, {.num_steps = 20, .idle_us = 3.0, .noise = 0.02}, random));
  int within_two = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    EXPECT_LT(estimates[i].read_error, 0.1 * ops[i].read_bytes + 0.01 * kMiB);
    if (std::abs(estimates[i].values[0] - ops[i].read_bytes) < 2.0 * estimates[i].read_error) ++within_two;
  }
  // Student's t with four degrees of freedom: 88 % within two standard errors.
  EXPECT_GT(within_two, 230);
}

TEST(SampleAttribution, OneRunTellsNothingOfItsError) {
  std::mt19937 random(12);
  const auto ops = random_ops(10, 20.0, 40.0, random);
  for (const OpEstimate& op : estimate_of(run_timeline(ops, {.num_steps = 1}, random))) {
    EXPECT_GT(op.values[0], 0.0);
    EXPECT_EQ(op.read_error, std::numeric_limits<double>::infinity());
  }
}

TEST(SampleAttribution, FindsSharesToo) {
  std::mt19937 random(13);
  const auto ops = random_ops(100, 2.0, 60.0, random);
  const std::vector<OpEstimate> estimates = estimate_of(run_timeline(ops, {.idle_us = 10.0}, random));
  for (size_t i = 0; i < ops.size(); ++i) {
    EXPECT_NEAR(estimates[i].values[1], ops[i].sm_active, 0.005);
    EXPECT_NEAR(estimates[i].mean_ns / 1e3 / ops[i].us, 1.0, 0.05);
  }
}

TEST(SampleAttribution, HitRateIsOfLookupsNotOfTime) {
  CounterSamples samples;
  samples.counters = {Counter::l2_throughput, Counter::l2_hit};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [lookups, hit] : {std::pair{0.8, 0.5}, {0.2, 1.0}, {0.0, nan}}) {
    samples.begin_ns.push_back(static_cast<int64_t>(samples.size()) * 1'000);
    samples.end_ns.push_back(samples.begin_ns.back() + 1'000);
    samples.values.insert(samples.values.end(), {lookups, hit});
  }
  SampleAttribution attribution(samples.counters);
  const StepSpans step{.step = 0, .first_slot = 0, .bounds_ns = {0, 3'000}};
  attribution.add_window(samples, {&step, 1});
  const OpEstimate op = attribution.estimate().at(0);
  EXPECT_NEAR(op.values[0], 1.0 / 3.0, 1e-9);
  EXPECT_NEAR(op.values[1], 0.6, 1e-9);
}

TEST(SampleAttribution, RefusesWhatCannotBe) {
  SampleAttribution attribution({Counter::dram_read_bytes});
  CounterSamples samples;
  samples.counters = {Counter::sm_active};
  EXPECT_THROW(attribution.add_window(samples, {}), Error);
  samples.counters = {Counter::dram_read_bytes};
  const std::vector<StepSpans> overlapping = {{.step = 0, .first_slot = 0, .bounds_ns = {0, 10}},
                                              {.step = 1, .first_slot = 0, .bounds_ns = {9, 20}}};
  EXPECT_THROW(attribution.add_window(samples, overlapping), Error);
  EXPECT_TRUE(SampleAttribution({Counter::sm_active}).estimate().empty());
}

TEST(BytesBetween, AddUpToAStep) {
  std::mt19937 random(14);
  const auto ops = random_ops(100, 2.0, 60.0, random);
  double all = 0.0;
  for (const TimelineOp& op : ops)
    all += op.read_bytes;
  for (const double idle_us : {0.0, 20.0}) {
    const Timeline line = run_timeline(ops, {.idle_us = idle_us}, random);
    for (const StepSpans& step : line.steps) {
      const bool is_first = step.step == 0, is_last = step.step == 11;
      const CountedBytes bytes =
          bytes_between(line.samples, 0, step.begin_ns(), step.end_ns(), is_first || idle_us > 2.0, is_last);
      EXPECT_NEAR(bytes.bytes / all, 1.0, 0.003);
      EXPECT_NEAR(bytes.covered, 1.0, 1e-9);
    }
  }
}

TEST(BytesBetween, SaysWhatWasLost) {
  std::mt19937 random(15);
  const auto ops = random_ops(100, 2.0, 60.0, random);
  Timeline line = run_timeline(ops, {}, random);
  const StepSpans& step = line.steps[5];
  const auto length_ns = static_cast<double>(step.end_ns() - step.begin_ns());
  size_t first = 0;
  while (line.samples.begin_ns[first] < step.begin_ns())
    ++first;
  erase_samples(line.samples, first + 10, 7);
  const CountedBytes bytes = bytes_between(line.samples, 0, step.begin_ns(), step.end_ns(), false, false);
  EXPECT_NEAR(bytes.covered, 1.0 - 7'000.0 / length_ns, 1e-9);
  EXPECT_EQ(bytes_between(line.samples, 0, 0, 1'000, false, false).covered, 0.0);
}

TEST(ClockShift, IsFoundToAFractionOfASample) {
  std::mt19937 random(16);
  const auto ops = random_ops(100, 2.0, 60.0, random);
  for (const int64_t off_ns : {0, 37, -450, 3'000, -2'000}) {
    const Timeline line = run_timeline(ops, {.idle_us = 5.0, .clock_ns = off_ns, .noise = 0.01}, random);
    const int64_t shift_ns = clock_shift_ns(line.samples, 0, line.steps, 8'000);
    EXPECT_LE(std::abs(shift_ns + off_ns), 50) << off_ns;
  }
}

TEST(ClockShift, IsNoneWhereNothingChanges) {
  std::mt19937 random(17);
  const std::vector<TimelineOp> even(20, TimelineOp{10.0, 10'000.0, 0.5});
  const Timeline line = run_timeline(even, {.jitter = 0.0}, random);
  EXPECT_EQ(clock_shift_ns(line.samples, 1, line.steps, 0), 0);
  EXPECT_EQ(clock_shift_ns({}, 0, line.steps, 1'000), 0);
  EXPECT_EQ(clock_shift_ns(line.samples, 0, {}, 1'000), 0);
}

}  // namespace
}  // namespace minfer
