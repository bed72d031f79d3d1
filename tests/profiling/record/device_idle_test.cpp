#include "profiling/record/device_idle.h"

#include <gtest/gtest.h>

namespace minfer {
namespace {

constexpr int64_t kUs = 1'000;

/// A step's ops on a timeline of microseconds; `launched` 0: launched by a graph.
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
  // The second op was launched 190 us after the end of the first; the third was launched in time, but began 60 us late.
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
  // The next op was launched 20 us after the end of the first, behind 250 us of work that is no op.
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

/// The host is ahead by less than the longest time to take up a launch, and no step is stamped closely.
TEST(DeviceIdle, WhatAnOpTakesIsLearnedFromLaunchesThatCameBeforeItBegan) {
  IdleFinder finder;
  finder.find(stamps_of({{100, 90, 0}, {120, 98, 0}}, 130));
  const auto ops = finder.find(stamps_of({{300, 290, 0}, {520, 515, 0}}, 530));
  EXPECT_TRUE(ops[1].is_late);
  EXPECT_EQ(ops[0].busy_ns, 20 * kUs);
  EXPECT_EQ(ops[0].idle_host_ns, 200 * kUs);
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

/// Steps of two ops, the first of which takes 20 us, on a machine that takes up a launch in 30 us. In each step the device is idle when
/// the first op is launched, as if the host waited for every step. Returns when the next step may begin.
int64_t learn_slow_take_up(IdleFinder& finder) {
  int64_t at = 1'000;
  for (int i = 0; i < 20; ++i, at += 100)
    finder.find(stamps_of({{at + 30, at, 0}, {at + 50, at + 5, 0}}, at + 60));
  return at;
}

TEST(DeviceIdle, HowSoonLaunchesAreTakenUpIsLearned) {
  IdleFinder finder;
  EXPECT_EQ(finder.take_up_ns(), IdleFinder::kTakeUpNs);
  learn_slow_take_up(finder);
  EXPECT_EQ(finder.take_up_ns(), 90 * kUs);
}

TEST(DeviceIdle, ALateLaunchIsFoundWhereLaunchesAreTakenUpSlowly) {
  for (const bool has_ends : {false, true}) {
    IdleFinder finder;
    int64_t at = learn_slow_take_up(finder);
    for (const int64_t delay : {50, 200, 1000}) {
      SCOPED_TRACE(delay);
      const int64_t end = at + 50, launched = end + delay;
      const auto ops = finder.find(
          stamps_of({{at + 30, at, has_ends ? end : 0}, {launched + 30, launched, 0}}, launched + 40));
      EXPECT_TRUE(ops[1].is_late);
      EXPECT_EQ(ops[0].busy_ns, 20 * kUs);
      EXPECT_EQ(ops[0].idle_host_ns, (delay + 30) * kUs);
      EXPECT_EQ(ops[0].idle_device_ns, 0);
      at = launched + 100;
    }
  }
}

TEST(DeviceIdle, AnOpThatTakesLongerIsBusyWhereLaunchesAreTakenUpSlowly) {
  IdleFinder finder;
  const int64_t at = learn_slow_take_up(finder);
  // While the first op runs: just before it may have ended, and long before.
  for (const int64_t launched : {at + 45, at + 55}) {
    const auto ops = finder.find(stamps_of({{at + 30, at, 0}, {at + 180, launched, 0}}, at + 190));
    EXPECT_FALSE(ops[1].is_late);
    EXPECT_EQ(ops[0].busy_ns, 150 * kUs);
    EXPECT_EQ(ops[0].idle_ns(), 0);
  }
}

TEST(DeviceIdle, ALaunchBeforeTheOpInFrontCanHaveEndedIsInTimeHoweverSoonItIsTakenUp) {
  IdleFinder finder;
  finder.find(stamps_of({{100, 90, 0}, {120, 80, 0}}, 130));  // 20 us at the least
  const auto ops = finder.find(stamps_of({{300, 290, 0}, {325, 318, 0}}, 335));
  EXPECT_FALSE(ops[1].is_late);
  EXPECT_EQ(ops[0].busy_ns, 25 * kUs);
}

TEST(DeviceIdle, WhatHeldLaunchesUpIsNoTakeUp) {
  IdleFinder finder;
  for (int64_t at = 1'000; at < 50'000;
       at += 1'000)  // 300 us of other work, which is no op, in front of each step
    finder.find(stamps_of({{at + 300, at, 0}, {at + 320, at + 5, 0}}, at + 330));
  EXPECT_EQ(finder.take_up_ns(), IdleFinder::kTakeUpNs);
}

TEST(DeviceIdle, AStepLaunchedAheadSaysNothingOfTakeUps) {
  IdleFinder finder;
  for (int64_t at = 1'000; at < 5'000; at += 100)  // launched while the step before still runs
    finder.find(stamps_of({{at + 50, at, 0}, {at + 70, at + 5, 0}}, at + 145));
  EXPECT_EQ(finder.take_up_ns(), IdleFinder::kTakeUpNs);
}

TEST(DeviceIdle, BusyAndIdleAddUpToTheStepWhateverTheStampsSay) {
  IdleFinder finder;
  // An end before its begin, and one behind the next begin: a corrected clock may give both.
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
