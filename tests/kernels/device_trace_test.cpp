// Records of a tracing library, put together.
#include "kernels/device_trace.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace minfer {
namespace {

constexpr int64_t kHostStart = 5'000'000'000, kHostStop = 5'200'000'000;

/// Three steps of two kernels and a copy each; one call launches each step, as with graphs. The clock is `shift_ns` ahead of
/// now_ns() and runs `rate` times as fast.
TraceRecords three_steps(int64_t shift_ns, double rate = 1.0) {
  const auto library_ns = [&](int64_t host_ns) {
    return kHostStart + shift_ns + static_cast<int64_t>(static_cast<double>(host_ns - kHostStart) * rate);
  };
  TraceRecords records;
  records.names = {"a", "b"};
  records.start = {.library_ns = library_ns(kHostStart), .host_ns = kHostStart};
  records.stop = {.library_ns = library_ns(kHostStop), .host_ns = kHostStop};
  for (int64_t step = 0; step < 3; ++step) {
    const auto correlation = static_cast<uint32_t>(100 + step);
    const int64_t launch = kHostStart + 10'000'000 + step * 50'000'000;
    records.windows.push_back({.step = step + 7, .begin_ns = launch, .end_ns = launch + 100'000});
    records.call_steps.push_back({.correlation = correlation, .step = step + 7});
    records.calls.push_back({.correlation = correlation,
                             .begin_ns = library_ns(launch + 20'000),
                             .end_ns = library_ns(launch + 60'000)});
    records.calls.push_back({.correlation = correlation,  // the driver's, within the runtime's
                             .begin_ns = library_ns(launch + 30'000),
                             .end_ns = library_ns(launch + 50'000)});
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t begin = launch + 200'000 + i * 10'000;
      records.activities.push_back({.kind = i == 2 ? ActivityKind::memcpy : ActivityKind::kernel,
                                    .correlation = correlation,
                                    .begin_ns = library_ns(begin),
                                    .end_ns = library_ns(begin + 8'000),
                                    .graph_node = 40 + i,
                                    .stream = 13,
                                    .name = i == 2 ? -1 : static_cast<int32_t>(i),
                                    .bytes = i == 2 ? 256 : 0});
    }
  }
  return records;
}

TEST(DeviceTraceTest, OrdersActivitiesAndGivesThemStepAndLaunch) {
  TraceRecords records = three_steps(0);
  std::mt19937 random(3);
  std::ranges::shuffle(records.activities, random);
  std::ranges::shuffle(records.calls, random);
  records.dropped = 5;
  records.overhead_ns = 1234;
  const DeviceTrace trace = join(std::move(records));
  EXPECT_FALSE(trace.own_clock);
  EXPECT_EQ(trace.dropped, 5);
  EXPECT_EQ(trace.invalid, 0);
  EXPECT_EQ(trace.overhead_ns, 1234);
  ASSERT_EQ(trace.activities.size(), 9u);
  for (size_t i = 0; i < 9; ++i) {
    SCOPED_TRACE(i);
    const DeviceActivity& activity = trace.activities[i];
    const int64_t launch = kHostStart + 10'000'000 + static_cast<int64_t>(i / 3) * 50'000'000;
    EXPECT_EQ(activity.step, static_cast<int64_t>(7 + i / 3));
    EXPECT_EQ(activity.begin_ns, launch + 200'000 + static_cast<int64_t>(i % 3) * 10'000);
    EXPECT_EQ(activity.end_ns, activity.begin_ns + 8'000);
    EXPECT_EQ(activity.launch_ns, launch + 60'000) << "the end of the outer call";
    EXPECT_EQ(activity.graph_node, static_cast<int64_t>(40 + i % 3));
    EXPECT_EQ(activity.stream, 13);
    EXPECT_EQ(activity.kind, i % 3 == 2 ? ActivityKind::memcpy : ActivityKind::kernel);
  }
}

TEST(DeviceTraceTest, AClockOfTheLibrarysOwnIsConverted) {
  for (const int64_t shift_ns : {int64_t{-4'000'000'000}, int64_t{1'700'000'000'000'000'000}}) {
    for (const double rate : {1.0, 1.0001}) {
      const DeviceTrace trace = join(three_steps(shift_ns, rate));
      EXPECT_TRUE(trace.own_clock);
      EXPECT_EQ(trace.invalid, 0);
      ASSERT_EQ(trace.activities.size(), 9u);
      EXPECT_NEAR(static_cast<double>(trace.activities[8].begin_ns - kHostStart), 110'220'000.0, 2.0);
      EXPECT_EQ(trace.activities[8].step, 9);
    }
  }
}

TEST(DeviceTraceTest, CallsAndActivitiesMayBeOnDifferentClocks) {
  TraceRecords records = three_steps(1'700'000'000'000'000'000);
  records.calls = three_steps(0).calls;
  const DeviceTrace trace = join(std::move(records));
  EXPECT_TRUE(trace.own_clock);
  EXPECT_EQ(trace.invalid, 0);
  for (const DeviceActivity& activity : trace.activities) {
    EXPECT_GE(activity.begin_ns, activity.launch_ns);
    EXPECT_LT(activity.begin_ns, activity.launch_ns + 1'000'000);
  }
}

TEST(DeviceTraceTest, WithoutCorrelationTheLaunchWindowTellsTheStep) {
  TraceRecords records = three_steps(0);
  records.call_steps.clear();
  DeviceTrace trace = join(std::move(records));
  EXPECT_EQ(trace.activities[4].step, 8);
  records = three_steps(0);
  records.calls.clear();
  trace = join(std::move(records));
  EXPECT_EQ(trace.activities[4].step, 8) << "by the correlation alone";
  EXPECT_EQ(trace.activities[4].launch_ns, 0);
  records = three_steps(0);
  records.calls.clear();
  records.call_steps.clear();
  trace = join(std::move(records));
  EXPECT_EQ(trace.activities[4].step, -1) << "nothing is known of its launch";
}

TEST(DeviceTraceTest, CallsBetweenLaunchesBelongToNoStep) {
  TraceRecords records = three_steps(0);
  records.calls.push_back(
      {.correlation = 1, .begin_ns = kHostStart + 30'000'000, .end_ns = kHostStart + 30'001'000});
  records.activities.push_back({.kind = ActivityKind::memset,
                                .correlation = 1,
                                .begin_ns = kHostStart + 30'002'000,
                                .end_ns = kHostStart + 30'003'000,
                                .bytes = 64});
  const DeviceTrace trace = join(std::move(records));
  ASSERT_EQ(trace.activities.size(), 10u);
  EXPECT_EQ(trace.activities[3].step, -1);
  EXPECT_EQ(trace.activities[3].launch_ns, kHostStart + 30'001'000);
}

TEST(DeviceTraceTest, ImpossibleTimesAreCountedAndLeftOut) {
  TraceRecords records = three_steps(0);
  const auto spoil = [&](size_t i, int64_t begin_ns, int64_t end_ns) {
    records.activities[i].begin_ns = begin_ns;
    records.activities[i].end_ns = end_ns;
  };
  spoil(0, 0, 0);
  spoil(3, kHostStart + 20, kHostStart + 10);
  spoil(5, 1'000, 2'000);
  spoil(8, kHostStop + 5'000'000, kHostStop + 6'000'000);
  const DeviceTrace trace = join(std::move(records));
  EXPECT_EQ(trace.invalid, 4);
  EXPECT_EQ(trace.activities.size(), 5u);
}

// The profiler launches its kernels also while the tracing begins and ends.
TEST(DeviceTraceTest, TheProfilersOwnKernelsAreNeverInvalid) {
  TraceRecords records = three_steps(0);
  records.names.push_back("tell_time");
  const auto ask = [&](int64_t begin_ns) {
    records.activities.push_back(
        {.correlation = 1, .begin_ns = begin_ns, .end_ns = begin_ns + 1'000, .stream = 14, .name = 2});
  };
  ask(kHostStart - 5'000'000);
  ask(kHostStart + 30'000'000);
  ask(kHostStop + 5'000'000);
  const DeviceTrace trace = join(std::move(records));
  EXPECT_EQ(trace.of_profiler, 3);
  EXPECT_EQ(trace.invalid, 0);
  EXPECT_EQ(trace.activities.size(), 9u);
}

TEST(DeviceTraceTest, WhatBeginsTogetherIsOrderedByItsLaunch) {
  TraceRecords records = three_steps(0);
  for (TraceRecords::Activity& activity : records.activities)
    activity.begin_ns = kHostStart + 60'000'000;
  std::ranges::reverse(records.activities);
  for (TraceRecords::Activity& activity : records.activities)
    activity.end_ns = activity.begin_ns + 1'000;
  const DeviceTrace trace = join(std::move(records));
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(trace.activities[i].step, static_cast<int64_t>(7 + i / 3));
    EXPECT_EQ(trace.activities[i].graph_node, static_cast<int64_t>(40 + i % 3));
  }
}

TEST(DeviceTraceTest, NothingTracedIsNothing) {
  const DeviceTrace trace = join({});
  EXPECT_TRUE(trace.activities.empty());
  EXPECT_EQ(trace.invalid, 0);
}

}  // namespace
}  // namespace minfer
