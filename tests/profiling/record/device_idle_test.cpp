#include "profiling/record/device_idle.h"

#include <gtest/gtest.h>

namespace minfer {
namespace {

constexpr int64_t kUs = 1'000;

/// A step's ops on a timeline of microseconds; `launched` 0: by a graph.
struct TimedOp {
  int64_t begin, launched, end;
};

StepStamps stamps_of(std::initializer_list<TimedOp> ops, int64_t end) {
  StepStamps stamps;
  for (const TimedOp& op : ops) {
    stamps.ops.push_back({.op = static_cast<OpId>(stamps.ops.size()),
                          .begin_ns = op.begin * kUs,
                          .launched_ns = op.launched * kUs,
                          .end_ns = op.end * kUs,
                          .num_launches = 1});
    stamps.launches.push_back(static_cast<int32_t>(stamps.launches.size()));
  }
  stamps.end_ns = end * kUs;
  return stamps;
}

TEST(DeviceIdle, OfAGraphNothingIsSeen) {
  IdleFinder finder;
  const auto ops = finder.find(stamps_of({{100, 0, 0}, {150, 0, 0}, {400, 0, 0}}, 410));
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_EQ(ops[1].busy_ns, 250 * kUs);
  EXPECT_EQ(ops[1].idle_ns(), 0);
  EXPECT_FALSE(ops[2].is_late);
  EXPECT_EQ(finder.source(), IdleSource::none);
}

TEST(DeviceIdle, EndsShowWhoWaitedForWhom) {
  IdleFinder finder;
  // The second op was launched 190 us after the first had ended, the third in time, and yet it began 60 us late.
  const auto ops = finder.find(stamps_of({{100, 90, 110}, {305, 300, 340}, {400, 310, 450}}, 455));
  EXPECT_EQ(finder.source(), IdleSource::end_stamps);
  EXPECT_EQ(ops[0].busy_ns, 10 * kUs);
  EXPECT_EQ(ops[0].idle_host_ns, 195 * kUs);
  EXPECT_EQ(ops[0].idle_device_ns, 0);
  EXPECT_TRUE(ops[1].is_late);
  EXPECT_EQ(ops[1].busy_ns, 35 * kUs);
  EXPECT_EQ(ops[1].idle_device_ns, 60 * kUs);
  EXPECT_EQ(ops[1].idle_host_ns, 0);
  EXPECT_FALSE(ops[2].is_late);
  EXPECT_EQ(ops[2].busy_ns, 55 * kUs) << "the last op lasts until the step's end";
}

TEST(DeviceIdle, WhatRanWhileTheNextOpWaitedIsNotTheHosts) {
  IdleFinder finder;
  // The next op was launched 20 us after the first had ended, behind something of 250 us that is no op.
  const auto ops = finder.find(stamps_of({{100, 90, 110}, {380, 130, 400}}, 401));
  EXPECT_EQ(ops[0].busy_ns, 10 * kUs);
  EXPECT_EQ(ops[0].idle_host_ns, 20 * kUs);
  EXPECT_EQ(ops[0].idle_device_ns, 250 * kUs);
}

TEST(DeviceIdle, TheGapOfALaunchIsNoIdleTime) {
  IdleFinder finder;
  const auto ops = finder.find(stamps_of({{100, 50, 110}, {112, 60, 140}}, 141));
  EXPECT_EQ(ops[0].busy_ns, 12 * kUs);
  EXPECT_EQ(ops[0].idle_ns(), 0);
}

TEST(DeviceIdle, WhatAnOpReadsAheadBeforeItsStampIsNoIdleTime) {
  IdleFinder finder;
  EXPECT_EQ(finder.find(stamps_of({{100, 50, 110}, {116, 60, 140}}, 141))[0].idle_ns(), 0);
  EXPECT_EQ(finder.find(stamps_of({{100, 50, 110}, {116, 112, 140}}, 141))[0].idle_host_ns, 6 * kUs);
}

TEST(DeviceIdle, EndsOfSomeOpsAreUsedBesideLaunchTimes) {
  IdleFinder finder;
  const auto ops =
      finder.find(stamps_of({{100, 90, 110}, {305, 300, 0}, {400, 310, 450}, {451, 311, 0}}, 455));
  EXPECT_EQ(finder.source(), IdleSource::launch_times);
  EXPECT_EQ(ops[0].busy_ns, 10 * kUs);
  EXPECT_EQ(ops[1].idle_ns(), 0);
}

TEST(DeviceIdle, WithoutEndsALateOpIsHeldAgainstWhatTheOneInFrontTakesAtTheLeast) {
  IdleFinder finder;
  finder.find(stamps_of({{100, 90, 0}, {120, 80, 0}}, 130));  // launched in time: 20 us
  finder.find(stamps_of({{200, 190, 0}, {225, 180, 0}}, 230));
  const auto ops = finder.find(stamps_of({{300, 290, 0}, {520, 515, 0}}, 530));
  EXPECT_EQ(finder.source(), IdleSource::launch_times);
  EXPECT_TRUE(ops[1].is_late);
  EXPECT_EQ(ops[0].busy_ns, 20 * kUs);
  EXPECT_EQ(ops[0].idle_host_ns, 200 * kUs);
}

TEST(DeviceIdle, ASlowOpThatTheNextOneWaitedForIsBusy) {
  IdleFinder finder;
  finder.find(stamps_of({{100, 90, 0}, {120, 80, 0}}, 130));
  const auto ops = finder.find(stamps_of({{300, 290, 0}, {520, 310, 0}}, 530));
  EXPECT_EQ(ops[0].busy_ns, 220 * kUs);
  EXPECT_EQ(ops[0].idle_ns(), 0);
}

TEST(DeviceIdle, WhatWasNeverFollowedCloselyStaysBusy) {
  IdleFinder finder;
  const auto ops = finder.find(stamps_of({{300, 290, 0}, {520, 515, 0}}, 530));
  EXPECT_TRUE(ops[1].is_late);
  EXPECT_EQ(ops[0].busy_ns, 220 * kUs);
  EXPECT_EQ(ops[0].idle_ns(), 0);
}

TEST(DeviceIdle, OtherLaunchesAreAnotherKindOfWork) {
  IdleFinder finder;
  finder.find(stamps_of({{100, 90, 110}, {112, 80, 120}}, 121));
  StepStamps larger = stamps_of({{300, 290, 0}, {520, 515, 0}}, 530);
  larger.launches[0] = 77;
  EXPECT_EQ(finder.find(larger)[0].idle_ns(), 0);
  larger.launches[0] = 0;
  EXPECT_EQ(finder.find(larger)[0].idle_ns(), 210 * kUs);
}

TEST(DeviceIdle, BusyAndIdleAddUpToTheStepWhateverTheStampsSay) {
  IdleFinder finder;
  // An end before its begin and one behind the next begin, as a clock that was corrected may give.
  const StepStamps stamps = stamps_of({{100, 90, 80}, {200, 195, 420}, {400, 395, 401}, {390, 1, 0}}, 500);
  int64_t sum = 0;
  for (const BusyOp& op : finder.find(stamps)) {
    EXPECT_GE(op.busy_ns, 0);
    EXPECT_GE(op.idle_host_ns, 0);
    EXPECT_GE(op.idle_device_ns, 0);
    sum += op.busy_ns + op.idle_ns();
  }
  EXPECT_EQ(sum, (100 + 200 + 0 + 110) * kUs);
}

TEST(DeviceIdle, TooFewLaunchesForTheOpsAreTaken) {
  IdleFinder finder;
  StepStamps stamps = stamps_of({{100, 90, 0}, {120, 80, 0}}, 130);
  stamps.launches.clear();
  EXPECT_EQ(finder.find(stamps).size(), 2u);
  EXPECT_TRUE(finder.find({}).empty());
}

}  // namespace
}  // namespace minfer
