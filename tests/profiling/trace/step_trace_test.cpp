// Kernel records placed in their step, and compared with the ops' intervals between stamps.
#include "profiling/trace/step_trace.h"

#include <cmath>

#include <gtest/gtest.h>

#include "profiling/trace/range_analysis.h"
#include "tests/support/profiling/traced_steps.h"

namespace minfer {
namespace {

using test::traced_activity;
using test::traced_launches;
using test::traced_ops;
using test::traced_stamps;

const std::vector<std::string> kNames{"norm", "product", "reduce", "unheard_of"};
constexpr int32_t kNorm = 0, kProduct = 1, kReduce = 2, kUnheardOf = 3;

StepTrace place_all(const std::vector<DeviceActivity>& activities) {
  return place(7, traced_stamps(), activities, number_names(kNames, traced_launches()));
}

/// The step's four kernels, each 5 us long with 1 us before the next.
std::vector<DeviceActivity> whole_step() {
  return {traced_activity(kNorm, 1'000, 6'000), traced_activity(kProduct, 7'000, 12'000),
          traced_activity(kReduce, 13'000, 18'000), traced_activity(kNorm, 19'000, 24'000)};
}

TEST(StepTraceTest, GivesEachKernelItsOpAndLaunch) {
  const StepTrace trace = place_all(whole_step());
  EXPECT_EQ(trace.step, 7);
  ASSERT_EQ(trace.activities.size(), 4u);
  const int32_t runs[] = {0, 1, 1, 2}, launches[] = {0, 1, 2, 0};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(trace.activities[i].run, runs[i]) << i;
    EXPECT_EQ(trace.activities[i].launch, launches[i]) << i;
    EXPECT_EQ(trace.activities[i].duration_ns, 5'000);
    EXPECT_EQ(trace.activities[i].own_ns, 5'000);
    EXPECT_EQ(trace.activities[i].gap_ns, i == 0 ? 0 : 1'000);
  }
  EXPECT_EQ(trace.busy_ns, 20'000);
  EXPECT_EQ(trace.idle_ns, 3'000);
  EXPECT_EQ(trace.host_wait_ns, 0) << "all had been launched";
  EXPECT_EQ(trace.unmatched + trace.missing, 0);
}

TEST(StepTraceTest, OverlapIsCountedOnce) {
  std::vector<DeviceActivity> activities = whole_step();
  activities[1].begin_ns = 4'000;  // while the first runs
  activities[2].begin_ns = 8'000;
  activities[2].end_ns = 11'000;  // within the second
  const StepTrace trace = place_all(activities);
  EXPECT_EQ(trace.activities[1].own_ns, 6'000);
  EXPECT_EQ(trace.activities[2].own_ns, 0);
  EXPECT_EQ(trace.activities[1].gap_ns, 0);
  EXPECT_EQ(trace.activities[3].gap_ns, 7'000) << "from the end of the second";
  EXPECT_EQ(trace.busy_ns, 16'000);
  EXPECT_EQ(trace.idle_ns, 7'000);
}

TEST(StepTraceTest, IdleTimeBeforeLateLaunchesIsTheHosts) {
  std::vector<DeviceActivity> activities = whole_step();
  activities[0].launch_ns = 900;
  activities[1].launch_ns = 6'400;   // after the first ended
  activities[2].launch_ns = 11'000;  // in time
  activities[3].launch_ns = 20'000;  // the call returned after the kernel began
  const StepTrace trace = place_all(activities);
  EXPECT_EQ(trace.host_wait_ns, 2'000);
  EXPECT_EQ(trace.activities[0].delay_ns, 100);
  EXPECT_EQ(trace.activities[1].delay_ns, 600);
  EXPECT_EQ(trace.activities[2].delay_ns, 2'000);
  EXPECT_EQ(trace.activities[3].delay_ns, 0);
  EXPECT_EQ(place_all(whole_step()).activities[0].delay_ns, -1) << "not known";
}

TEST(StepTraceTest, EveryGapHasACause) {
  std::vector<DeviceActivity> activities = whole_step();
  activities[0].launch_ns = 900;
  activities[1].launch_ns = 6'400;  // after the first ended
  activities[2].launch_ns = 11'000;
  activities[3].launch_ns = 0;
  const auto causes = [&] {
    std::vector<GapCause> all;
    for (const TracedActivity& activity : place_all(activities).activities)
      all.push_back(activity.gap_cause);
    return all;
  };
  EXPECT_EQ(causes(), (std::vector{GapCause::start, GapCause::host, GapCause::device, GapCause::unknown}));
  activities[1].begin_ns = 6'000;  // at once
  EXPECT_EQ(causes()[1], GapCause::none);
  activities[2].launch_ns = 12'000;  // as the product ends
  EXPECT_EQ(causes()[2], GapCause::device);
  EXPECT_EQ(gap_cause(true, 5, 100, 0), GapCause::start);
  EXPECT_EQ(gap_cause(false, 0, 100, 0), GapCause::none);
}

TEST(StepTraceTest, WhatRunsForNoOpIsNotAttributed) {
  std::vector<DeviceActivity> activities = whole_step();
  EXPECT_EQ(place_all(activities).attributed_ns, 20'000);
  activities[1].begin_ns = 4'000;  // while the first runs
  EXPECT_EQ(place_all(activities).attributed_ns, 21'000) << "overlap once";
  activities.insert(activities.begin() + 2, traced_activity(kUnheardOf, 12'100, 12'900));
  EXPECT_EQ(place_all(activities).attributed_ns, 21'000);
  EXPECT_EQ(place_all(activities).busy_ns, 21'800);
}

TEST(StepTraceTest, MissingAndStrangeKernelsAreCounted) {
  std::vector<DeviceActivity> activities = whole_step();
  activities.erase(activities.begin() + 1);
  StepTrace trace = place_all(activities);
  EXPECT_EQ(trace.missing, 1);
  EXPECT_EQ(trace.unmatched, 0);
  EXPECT_EQ(trace.activities[1].run, 1) << "the reduction after the missing product";
  activities = whole_step();
  activities.insert(activities.begin() + 2, traced_activity(kUnheardOf, 12'100, 12'200));
  trace = place_all(activities);
  EXPECT_EQ(trace.missing, 0);
  EXPECT_EQ(trace.unmatched, 1);
  EXPECT_EQ(trace.activities[2].run, -1);
  EXPECT_EQ(trace.activities[2].launch, -1);
  EXPECT_EQ(trace.activities[3].run, 1);
}

TEST(StepTraceTest, CopiesBelongToNoOpAndAreNoKernelTime) {
  std::vector<DeviceActivity> activities = whole_step();
  DeviceActivity copy{.kind = ActivityKind::memcpy, .begin_ns = 6'200, .end_ns = 6'700, .bytes = 64};
  activities.insert(activities.begin() + 1, copy);
  const StepTrace trace = place_all(activities);
  EXPECT_EQ(trace.activities[1].run, -1);
  EXPECT_EQ(trace.activities[1].gap_ns, 200);
  EXPECT_EQ(trace.activities[2].gap_ns, 300);
  EXPECT_EQ(trace.busy_ns, 20'000);
  EXPECT_EQ(trace.idle_ns, 3'000);
  EXPECT_EQ(trace.unmatched, 0);
}

TEST(StepTraceTest, AStepWithoutLaunchesLeavesAllKernelsOver) {
  StepStamps stamps = traced_stamps();
  stamps.launches.clear();
  for (StepStamps::Stamp& stamp : stamps.ops)
    stamp.num_launches = 0;
  const StepTrace trace = place(0, stamps, whole_step(), number_names(kNames, {}));
  EXPECT_EQ(trace.unmatched, 4);
  EXPECT_EQ(trace.missing, 0);
}

TEST(StepTraceTest, StampsThatNameMoreLaunchesThanThereAreDoNoHarm) {
  StepStamps stamps = traced_stamps();
  stamps.ops[1].num_launches = 1'000'000;
  StepTrace trace = place(0, stamps, whole_step(), number_names(kNames, traced_launches()));
  EXPECT_EQ(trace.activities[3].run, 1);
  stamps = traced_stamps();
  stamps.launches = {-1, 9999, 2, 0};  // not in the table: they match any kernel
  trace = place(0, stamps, whole_step(), number_names(kNames, traced_launches()));
  EXPECT_EQ(trace.unmatched + trace.missing, 0);
}

/// The attribution of one step with traced_stamps().
Attribution attribution_of(const std::vector<DeviceActivity>& activities) {
  const std::vector<TracedStep> steps{{.step = 0, .shape = {}, .stamps = traced_stamps()}};
  return attribution_of(traced_ops(), steps, std::vector{place_all(activities)});
}

TEST(AttributionTest, HoldsIntervalsAgainstKernels) {
  // Stamps: 1.5 us, then 7.5, 19.5, end 24.2: intervals 6.0, 12.0 and 4.7 us; kernels 5, 10 and 5.
  const Attribution result = attribution_of(whole_step());
  EXPECT_EQ(result.steps, 1);
  EXPECT_DOUBLE_EQ(result.step_us, 22.7);
  ASSERT_EQ(result.ops.size(), 2u) << "both norms are one, an op that did not run is none";
  EXPECT_EQ(result.ops[0].op, "product");
  EXPECT_DOUBLE_EQ(result.ops[0].stamped_us, 12.0);
  EXPECT_DOUBLE_EQ(result.ops[0].kernel_us, 10.0);
  EXPECT_DOUBLE_EQ(result.ops[0].difference_us, 2.0);
  EXPECT_EQ(result.ops[1].op, "norm");
  EXPECT_EQ(result.ops[1].runs, 2);
  EXPECT_NEAR(result.ops[1].difference_us, 1.3, 1e-9) << "1.0 too much and 0.3 too little do not cancel";
  EXPECT_NEAR(result.difference(), 3.3 / 22.7, 1e-9);
}

TEST(AttributionTest, OverlapIsInTheDurationsAlone) {
  std::vector<DeviceActivity> activities = whole_step();
  activities[1].begin_ns = 2'000;  // placed early; it waits for the first
  const Attribution result = attribution_of(activities);
  EXPECT_DOUBLE_EQ(result.ops[0].kernel_us, 15.0);
  EXPECT_DOUBLE_EQ(result.ops[0].own_us, 11.0);
  EXPECT_DOUBLE_EQ(result.ops[0].difference_us, 3.0);
  EXPECT_DOUBLE_EQ(result.ops[0].own_difference_us, 1.0);
}

TEST(AttributionTest, AnOpWithoutKernelsDiffersByAllOfIt) {
  EXPECT_DOUBLE_EQ(attribution_of({}).difference(), 1.0);
  EXPECT_EQ(attribution_of(traced_ops(), {}, {}).difference(), 0.0);
}

TEST(RangeAnalysisTest, AddsUpTheStepsOfARange) {
  const RangeAnalysis analysis(test::traced_range(3), traced_ops());
  const RangeLine& line = analysis.line();
  EXPECT_EQ(line.error, "");
  EXPECT_EQ(line.first_step, 10);
  EXPECT_EQ(line.last_step, 12);
  EXPECT_EQ(line.steps, 3);
  EXPECT_EQ(line.kernels, 12);
  EXPECT_EQ(line.copies, 3);
  EXPECT_EQ(line.unmatched + line.missing + line.invalid, 0);
  EXPECT_EQ(line.outside, 1);
  EXPECT_EQ(line.of_profiler, 2);
  ASSERT_EQ(line.strangers.size(), 1u);
  EXPECT_EQ(line.strangers[0].kernel, "norm");
  EXPECT_EQ(line.strangers[0].outside, 1);
  EXPECT_EQ(line.strangers[0].unmatched, 0);
  EXPECT_EQ(line.dropped, 4);
  EXPECT_NEAR(line.busy_us, 60.0, 1e-9);
  EXPECT_NEAR(line.idle_us, 9.0, 1e-9);
  EXPECT_EQ(line.idle.start.gaps, 2) << "the first one's is not known";
  EXPECT_NEAR(line.idle.start.us, 2 * (100.0 - 26.0), 1e-9);
  EXPECT_EQ(line.idle.device.gaps, 12) << "three within each step, and before its copy";
  EXPECT_NEAR(line.idle.device.us, 3 * (3.0 + 2.0), 1e-9);
  EXPECT_EQ(line.idle.host.gaps + line.idle.unknown.gaps, 0);
  ASSERT_EQ(line.idle.ops.size(), 3u);
  EXPECT_EQ(line.idle.ops[0].op, "memcpy");
  EXPECT_EQ(line.idle.ops[1].op, "product");
  EXPECT_EQ(line.idle.ops[1].device.gaps, 6);
  EXPECT_NEAR(line.idle.ops[1].us(), 6.0, 1e-9);
  std::vector<StepKernels> steps;
  analysis.for_each_step([&](const StepKernels& step) { steps.push_back(step); });
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[1].step, 11);
  EXPECT_EQ(steps[1].kernels, 4);
  EXPECT_NEAR(steps[1].busy_us, 20.0, 1e-9);
  EXPECT_NEAR(steps[1].attributed_us, 20.0, 1e-9);
  EXPECT_NEAR(steps[1].idle_us, 3.0, 1e-9);
  EXPECT_EQ(line.attribution.steps, 3);
  std::vector<KernelLine> kernels;
  analysis.for_each_kernel([&](const KernelLine& kernel) { kernels.push_back(kernel); });
  ASSERT_EQ(kernels.size(), 15u);
  EXPECT_EQ(kernels[1].step, 10);
  EXPECT_EQ(kernels[1].op, "product");
  EXPECT_EQ(kernels[1].layer, 0);
  EXPECT_EQ(kernels[1].phase, StepPhase::decode);
  EXPECT_EQ(kernels[1].kernel, "product");
  EXPECT_EQ(kernels[1].launch, 1);
  EXPECT_TRUE(kernels[1].in_graph);
  EXPECT_DOUBLE_EQ(kernels[1].us, 5.0);
  EXPECT_DOUBLE_EQ(kernels[1].gap_us, 1.0);
  EXPECT_GT(kernels[1].launch_delay_us, 0.0);
  EXPECT_EQ(kernels[4].kind, ActivityKind::memcpy);
  EXPECT_EQ(kernels[4].op, "");
  EXPECT_FALSE(kernels[4].phase.has_value());
  EXPECT_EQ(kernels[4].bytes, 512);
  EXPECT_EQ(kernels[5].step, 11);
}

TEST(RangeAnalysisTest, EachRankHasWhatItsDeviceDid) {
  std::vector<RangeTrace> ranges = by_rank(test::traced_range_of_two(3));
  ASSERT_EQ(ranges.size(), 2u);
  const RangeAnalysis alone(test::traced_range(3), traced_ops());
  const RangeAnalysis first(std::move(ranges[0]), traced_ops()), second(std::move(ranges[1]), traced_ops());
  EXPECT_EQ(first.line().rank, 0);
  EXPECT_EQ(first.line().kernels, alone.line().kernels) << "what the other's device did is not in it";
  EXPECT_EQ(first.line().outside, alone.line().outside);
  EXPECT_EQ(first.line().dropped, 4);
  EXPECT_EQ(second.line().rank, 1);
  EXPECT_EQ(second.line().first_step, 10);
  EXPECT_EQ(second.line().steps, 3);
  EXPECT_EQ(second.line().kernels, 12);
  EXPECT_EQ(second.line().copies, 0);
  EXPECT_EQ(second.line().unmatched + second.line().missing + second.line().outside + second.line().dropped,
            0);
  EXPECT_NEAR(second.line().busy_us, 60.0, 1e-9);
  std::vector<KernelLine> kernels;
  second.for_each_kernel([&](const KernelLine& kernel) { kernels.push_back(kernel); });
  ASSERT_EQ(kernels.size(), 12u);
  const auto expect_kernel = [&](size_t place, const std::string& name, const std::string& op,
                                 int32_t launch) {
    EXPECT_EQ(kernels[place].rank, 1);
    EXPECT_EQ(kernels[place].kernel, name);
    EXPECT_EQ(kernels[place].op, op);
    EXPECT_EQ(kernels[place].phase, StepPhase::decode);
    EXPECT_EQ(kernels[place].launch, launch) << "by the first rank's table, which the file has";
  };
  expect_kernel(0, "norm", "norm", 0);
  expect_kernel(1, "product", "product", 1);
  expect_kernel(2, "reduce", "product", 2);
  second.for_each_step([](const StepKernels& step) { EXPECT_EQ(step.rank, 1); });
}

// A device without a rank, for example another library's.
TEST(RangeAnalysisTest, OtherDevicesAreLeftOut) {
  RangeTrace range = test::traced_range_of_two(3);
  range.ranks.clear();
  std::vector<RangeTrace> ranges = by_rank(std::move(range));
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_EQ(RangeAnalysis(std::move(ranges[0]), traced_ops()).line().kernels, 12);
}

TEST(RangeAnalysisTest, ARangeThatCouldNotBeTracedSaysWhy) {
  RangeTrace range;
  range.first_step = 40;
  range.error = "CUPTI is held by nsys";
  const RangeAnalysis analysis(std::move(range), traced_ops());
  EXPECT_EQ(analysis.line().error, "CUPTI is held by nsys");
  EXPECT_EQ(analysis.line().steps, 0);
  EXPECT_EQ(analysis.line().first_step, 40);
  analysis.for_each_kernel([](const KernelLine&) { FAIL(); });
}

TEST(RangeAnalysisTest, StepsWithoutRecordsAreMissingAllKernels) {
  RangeTrace range = test::traced_range(2);
  range.records.activities.clear();
  const RangeAnalysis analysis(std::move(range), traced_ops());
  EXPECT_EQ(analysis.line().steps, 2);
  EXPECT_EQ(analysis.line().missing, 8);
  EXPECT_DOUBLE_EQ(analysis.line().attribution.difference(), 1.0);
}

}  // namespace
}  // namespace minfer
