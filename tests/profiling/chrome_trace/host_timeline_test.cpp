#include "profiling/chrome_trace/host_timeline.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace minfer {
namespace {

/// schedule 1, build 2, launch 7, wait `wait_us`, commit 1, mask 0, detokenise 2, respond 1 us.
StepSummary hosted_step(int64_t number, int64_t start_ns, double wall_us, double wait_us, bool on_device) {
  StepSummary step;
  step.step = number;
  step.start_ns = start_ns;
  step.wall_us = wall_us;
  step.on_device = on_device;
  step.host_us = {0.0, 1.0, 2.0, 7.0, wait_us, 1.0, 0.0, 2.0, 1.0};
  return step;
}

class HostTimelineTest : public testing::Test {
 protected:
  void add(const StepSummary& step, std::optional<int64_t> launched_ns = std::nullopt) {
    timeline_.add(step, launched_ns, visit_);
  }
  void finish() {
    timeline_.finish(visit_);
    for (size_t i = 1; i < parts_.size(); ++i)
      EXPECT_GE(parts_[i].span.begin_ns, parts_[i - 1].span.end_ns) << i;
  }
  /// "wait 7: 10000-12000"
  std::string part(HostSpan kind, int64_t step) const {
    for (const HostTimeline::Part& part : parts_) {
      if (part.kind == kind && part.step == step)
        return fmt::format("{}-{}", part.span.begin_ns, part.span.end_ns);
    }
    return "none";
  }

  std::vector<HostTimeline::Launch> launches_;
  std::vector<HostTimeline::Part> parts_;
  HostTimeline timeline_;
  const HostTimeline::Visit visit_{
      [this](const HostTimeline::Launch& launch) { launches_.push_back(launch); },
      [this](const HostTimeline::Part& part) { parts_.push_back(part); }};
};

TEST_F(HostTimelineTest, OnTheCpuTheOpsLieBetweenLaunchAndTheEnd) {
  add(hosted_step(0, 100'000, 50.0, 0.0, false));
  finish();
  ASSERT_EQ(parts_.size(), kHostSpans);
  EXPECT_EQ(part(HostSpan::launch, 0), "103000-110000");
  EXPECT_EQ(part(HostSpan::commit, 0), "146000-147000");
  EXPECT_EQ(part(HostSpan::respond, 0), "149000-150000");
}

TEST_F(HostTimelineTest, MasksComeBehindTheCommit) {
  StepSummary step = hosted_step(0, 100'000, 50.0, 0.0, false);
  step.host_us[static_cast<size_t>(HostSpan::mask)] = 4.0;
  add(step);
  finish();
  EXPECT_EQ(part(HostSpan::commit, 0), "142000-143000");
  EXPECT_EQ(part(HostSpan::mask, 0), "143000-147000");
  EXPECT_EQ(part(HostSpan::detokenise, 0), "147000-149000");
}

TEST_F(HostTimelineTest, DraftsComeBeforeTheSchedule) {
  StepSummary step = hosted_step(0, 100'000, 50.0, 0.0, false);
  step.host_us[static_cast<size_t>(HostSpan::draft)] = 5.0;
  add(step);
  finish();
  EXPECT_EQ(part(HostSpan::draft, 0), "100000-105000");
  EXPECT_EQ(part(HostSpan::schedule, 0), "105000-106000");
}

TEST_F(HostTimelineTest, TheWaitEndsWithTheStepOnADevice) {
  add(hosted_step(0, 100'000, 50.0, 30.0, true));
  add(hosted_step(1, 160'000, 50.0, 30.0, true));  // the host began it while nothing ran
  finish();
  EXPECT_EQ(part(HostSpan::wait, 0), "120000-150000");
  EXPECT_EQ(part(HostSpan::respond, 0), "153000-154000");
  EXPECT_EQ(part(HostSpan::schedule, 1), "160000-161000");
  EXPECT_EQ(launches_[1].begin, HostBegin::record);
}

TEST_F(HostTimelineTest, AQueuedStepWasLaunchedWhileTheDeviceWorked) {
  add(hosted_step(0, 100'000, 50.0, 30.0, true));
  add(hosted_step(1, 150'000, 50.0, 30.0, true));
  add(hosted_step(2, 200'000, 50.0, 30.0, true));
  finish();
  EXPECT_EQ(part(HostSpan::launch, 0), "103000-110000");
  EXPECT_EQ(part(HostSpan::launch, 1), "113000-120000") << "in front of the wait for step 0";
  EXPECT_EQ(part(HostSpan::wait, 0), "120000-150000");
  EXPECT_EQ(part(HostSpan::launch, 2), "157000-164000") << "behind what step 0 had to be done";
  EXPECT_EQ(part(HostSpan::wait, 1), "170000-200000");
  EXPECT_EQ(launches_[1].begin, HostBegin::order);
}

TEST_F(HostTimelineTest, KernelsTellWhenAQueuedStepWasLaunched) {
  add(hosted_step(0, 100'000, 50.0, 20.0, true), 110'000);
  add(hosted_step(1, 150'000, 50.0, 30.0, true), 125'000);
  finish();
  EXPECT_EQ(part(HostSpan::launch, 0), "103000-110000");
  EXPECT_EQ(part(HostSpan::launch, 1), "118000-125000");
  EXPECT_EQ(part(HostSpan::wait, 0), "130000-150000");
  EXPECT_EQ(launches_[1].begin, HostBegin::kernels);
}

// The first step of a range was launched before the device reached it.
TEST_F(HostTimelineTest, TheFirstStepMayHaveBeenQueuedToo) {
  add(hosted_step(5, 100'000, 50.0, 20.0, true), 80'000);
  finish();
  EXPECT_EQ(part(HostSpan::launch, 5), "73000-80000");
  EXPECT_EQ(launches_[0].begin, HostBegin::kernels);
}

TEST_F(HostTimelineTest, LongPartsNeverOverlap) {
  add(hosted_step(0, 100'000, 50.0, 500.0, true));
  add(hosted_step(1, 150'000, 50.0, 500.0, true));
  add(hosted_step(2, 160'000, 1.0, 500.0, true), 3'000);
  add(hosted_step(3, 170'000, 1.0, 0.0, false));
  finish();
  EXPECT_EQ(parts_.size(), 4 * kHostSpans);
}

}  // namespace
}  // namespace minfer
