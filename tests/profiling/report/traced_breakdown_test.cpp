#include "profiling/report/device/traced_breakdown.h"

#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "profiling/report/report.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

constexpr StepWall kWall{
    .start_ns = 1'000.0, .end_ns = 101'000.0, .launch_us = 4.0, .work_us = 6.0};  // 100 us

/// `begin_us`: time after the step's begin.
KernelLine activity(double begin_us, double us, ActivityKind kind = ActivityKind::kernel) {
  KernelLine line;
  line.step = 7;
  line.kind = kind;
  if (kind == ActivityKind::kernel) line.kernel = "row_product";
  line.start_ns = 1'000 + static_cast<int64_t>(begin_us * 1e3);
  line.us = us;
  return line;
}

KernelLine behind_gap(KernelLine line, GapCause cause, double launch_delay_us = -1.0) {
  line.gap_cause = cause;
  line.launch_delay_us = launch_delay_us;
  return line;
}

TEST(TracedBreakdown, OverlappingKernelsCountOnce) {
  const StepBreakdown parts = traced_breakdown(
      kWall, std::vector{activity(0, 40), activity(30, 30), activity(35, 5), activity(60, 40)});
  EXPECT_DOUBLE_EQ(parts.kernel_us, 100.0);
  EXPECT_DOUBLE_EQ(parts.all_us(), 100.0);
}

TEST(TracedBreakdown, CopiesBesideKernelsAreTheKernels) {
  KernelLine reduction = activity(60, 30);
  reduction.kernel = "ncclDevKernel_AllReduce";
  const StepBreakdown parts = traced_breakdown(
      kWall, std::vector{activity(0, 50), activity(40, 20, ActivityKind::memcpy),
                         activity(55, 15, ActivityKind::memset), reduction, activity(80, 20)});
  EXPECT_DOUBLE_EQ(parts.kernel_us, 70.0);
  EXPECT_DOUBLE_EQ(parts.memcpy_us, 10.0) << "beside a kernel for as long again";
  EXPECT_DOUBLE_EQ(parts.memset_us, 10.0) << "5 us of it beside the copy";
  EXPECT_DOUBLE_EQ(parts.communication_us, 10.0) << "what no other covers";
  EXPECT_DOUBLE_EQ(parts.all_us(), 100.0);
}

TEST(TracedBreakdown, GapsHaveTheCauseOfWhatEndsThem) {
  const StepBreakdown parts =
      traced_breakdown(kWall, std::vector{activity(0, 20), behind_gap(activity(30, 20), GapCause::host, 1.0),
                                          behind_gap(activity(55, 20), GapCause::device, 30.0),
                                          behind_gap(activity(82, 8), GapCause::unknown)});
  EXPECT_DOUBLE_EQ(parts.kernel_us, 68.0);
  EXPECT_DOUBLE_EQ(parts.launch_us, 10.0);
  EXPECT_DOUBLE_EQ(parts.idle_us, 5.0 + 7.0 + 10.0) << "and what is behind the last";
  EXPECT_DOUBLE_EQ(parts.host_us, 0.0);
  EXPECT_DOUBLE_EQ(parts.all_us(), 100.0);
}

TEST(TracedBreakdown, BeforeTheFirstKernelTheHostHadToSchedule) {
  // Launched 17 us into the step: 4 us of launching, 6 us of other work, the rest is unexplained.
  const StepBreakdown late =
      traced_breakdown(kWall, std::vector{behind_gap(activity(20, 80), GapCause::start, 3.0)});
  EXPECT_DOUBLE_EQ(late.launch_us, 4.0);
  EXPECT_DOUBLE_EQ(late.host_us, 6.0);
  EXPECT_DOUBLE_EQ(late.idle_us, 10.0);
  EXPECT_DOUBLE_EQ(late.all_us(), 100.0);
  // Launched while the step in front still ran.
  const StepBreakdown ahead =
      traced_breakdown(kWall, std::vector{behind_gap(activity(20, 80), GapCause::start, 500.0)});
  EXPECT_DOUBLE_EQ(ahead.idle_us, 20.0);
  StepWall behind_another = kWall;
  behind_another.busy_until_ns = 6'000.0;
  const StepBreakdown busy =
      traced_breakdown(behind_another, std::vector{behind_gap(activity(20, 80), GapCause::start, 500.0)});
  EXPECT_DOUBLE_EQ(busy.kernel_us, 85.0);
  EXPECT_DOUBLE_EQ(busy.idle_us, 15.0);
}

TEST(TracedBreakdown, WhatLiesOutsideOfTheStepIsCutOff) {
  const StepBreakdown parts =
      traced_breakdown(kWall, std::vector{activity(-1, 3), activity(90, 50), activity(200, 5)});
  EXPECT_DOUBLE_EQ(parts.kernel_us, 12.0);
  EXPECT_DOUBLE_EQ(parts.idle_us, 88.0);
  EXPECT_DOUBLE_EQ(traced_breakdown(kWall, {}).idle_us, 100.0);
  EXPECT_DOUBLE_EQ(traced_breakdown({}, std::vector{activity(0, 10)}).all_us(), 0.0);
}

TEST(TracedBreakdown, SumsToTheWallTimeOfAnyStep) {
  std::mt19937 random(7);
  const auto drawn = [&](double most) {
    return std::uniform_int_distribution<int>(0, static_cast<int>(most * 1e3))(random) * 1e-3;
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<KernelLine> activities;
    double begin_us = drawn(30) - 15;
    for (int i = 0; i < 12; ++i) {
      KernelLine line = activity(begin_us, drawn(20), static_cast<ActivityKind>(random() % 3));
      line = behind_gap(std::move(line), static_cast<GapCause>(random() % 5), drawn(40) - 10);
      if (random() % 8 == 0) line.kernel = "ncclKernel";
      activities.push_back(std::move(line));
      begin_us += drawn(15);
    }
    StepWall wall = kWall;
    wall.busy_until_ns = 1'000.0 + drawn(40) * 1e3 - 20e3;
    ASSERT_NEAR(traced_breakdown(wall, activities).all_us(), 100.0, 1e-6) << round;
  }
}

/// Two consecutive traced steps of 100 us, and a step with a missing kernel line.
ProfileFile kernel_file() {
  ProfileFile file;
  file.header = test::sample_header();
  file.header.backend = "cuda";
  for (int64_t number = 0; number < 3; ++number) {
    StepSummary& step = file.steps.emplace_back();
    step.step = number;
    step.start_ns = 1'000 + number * 100'000;
    step.wall_us = 100.0;
    step.gpu_us = 99.0;
    step.on_device = true;
    step.batch.shape.decode_tokens = 4;
    file.traced.push_back({.step = number, .kernels = number < 2 ? 1 : 2, .attributed_us = 90.0});
    file.kernels.push_back(
        behind_gap(activity(static_cast<double>(number) * 100 + 5, 90), GapCause::start, 50.0));
    file.kernels.back().step = number;
  }
  file.kernels[0].us = 97.0;  // 2 us into the next step
  return file;
}

TEST(TracedBreakdown, StandsBesideTheStampedOne) {
  const ProfileFile file = kernel_file();
  const ReportData data = report_data(file, {}, 5);
  EXPECT_EQ(data.traced_breakdown.steps, 2) << "of the third a kernel is missing";
  const StepBreakdown& decode = data.traced_breakdown.by_phase[static_cast<size_t>(StepPhase::decode)];
  EXPECT_NEAR(decode.kernel_us, 95.0 + 2.0 + 90.0, 1e-9);
  EXPECT_NEAR(decode.all_us(), 200.0, 1e-9);
  const std::string text = render_report(file, {});
  EXPECT_NE(text.find("The same by CUPTI, 2 traced steps (%)\nphase  kernel"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json}));
  EXPECT_EQ(json["traced_breakdown_us"]["steps"], 2);
  EXPECT_NEAR(json["traced_breakdown_us"]["by_phase"]["decode"]["kernel"].get<double>(), 187.0, 1e-9);
  ProfileFile untraced = file;
  untraced.traced.clear();
  EXPECT_EQ(render_report(untraced, {}).find("by CUPTI"), std::string::npos);
  EXPECT_EQ(report_data(file, {.steps = std::pair{1, 2}}, 5).traced_breakdown.steps, 1)
      << "of the steps asked for";
}

}  // namespace
}  // namespace minfer
