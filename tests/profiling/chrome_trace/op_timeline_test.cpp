#include "profiling/chrome_trace/op_timeline.h"

#include <gtest/gtest.h>

namespace minfer {
namespace {

StepSummary timeline_step() {
  StepSummary step;
  step.step = 7;
  step.start_ns = 100'000;
  step.wall_us = 50.0;  // ends at 150,000
  step.on_device = true;
  step.ops.resize(2);
  step.ops[0].op = "norm";
  step.ops[0].us = 10.0;
  step.ops[1].op = "product";
  step.ops[1].us = 30.0;
  return step;
}

KernelLine timeline_kernel(const char* op, int32_t layer, int64_t start_ns, double us) {
  KernelLine kernel;
  kernel.step = 7;
  kernel.op = op;
  kernel.layer = layer;
  kernel.phase = StepPhase::decode;
  kernel.kernel = std::string(op) + "_kernel";
  kernel.start_ns = start_ns;
  kernel.us = us;
  return kernel;
}

void expect_span(const TimeSpan& span, int64_t begin_ns, int64_t end_ns) {
  EXPECT_EQ(span.begin_ns, begin_ns);
  EXPECT_EQ(span.end_ns, end_ns);
}

TEST(OpTimelineTest, WithoutKernelsTheSumsEndWithTheStepOnADevice) {
  const StepSummary step = timeline_step();
  const OpTimeline timeline = place_ops(step, {});
  EXPECT_EQ(timeline.times, OpTimes::sums);
  ASSERT_EQ(timeline.ops.size(), 2u);
  expect_span(timeline.ops[0].span, 110'000, 120'000);
  expect_span(timeline.ops[1].span, 120'000, 150'000);
}

TEST(OpTimelineTest, OnTheCpuOpsBeginWhenTheHostHadLaunched) {
  StepSummary step = timeline_step();
  step.on_device = false;
  step.host_us = {0.0, 1.0, 2.0, 3.0, 0.5};
  expect_span(place_ops(step, {}).ops[0].span, 106'000, 116'000);
}

TEST(OpTimelineTest, LayersAreLaidInTheOrderTheyRan) {
  StepSummary step = timeline_step();
  step.layers = {{.layer = 0, .op = "norm", .us = 5.0},
                 {.layer = 0, .op = "product", .us = 15.0},
                 {.layer = 1, .op = "norm", .us = 5.0},
                 {.layer = 1, .op = "product", .us = 15.0}};
  const OpTimeline timeline = place_ops(step, {});
  EXPECT_EQ(timeline.times, OpTimes::layers);
  ASSERT_EQ(timeline.ops.size(), 4u);
  expect_span(timeline.ops[2].span, 130'000, 135'000);
  EXPECT_EQ(timeline.ops[2].layer, 1);
}

TEST(OpTimelineTest, KernelsGiveOpsTheirOwnTimeWithoutOverlap) {
  const StepSummary step = timeline_step();
  const std::vector<KernelLine> kernels{
      timeline_kernel("norm", 0, 110'000, 4.0), timeline_kernel("product", 0, 112'000, 6.0),
      timeline_kernel("product", 0, 119'000, 3.0), timeline_kernel("norm", 1, 125'000, 1.0)};
  const OpTimeline timeline = place_ops(step, kernels);
  EXPECT_EQ(timeline.times, OpTimes::kernels);
  ASSERT_EQ(timeline.ops.size(), 3u) << "an op of two kernels is one";
  expect_span(timeline.ops[0].span, 110'000, 114'000);
  expect_span(timeline.ops[1].span, 114'000, 122'000);
  expect_span(timeline.ops[2].span, 125'000, 126'000);
}

TEST(OpTimelineTest, StaysWithinTheStep) {
  StepSummary step = timeline_step();
  const std::vector<KernelLine> kernels{timeline_kernel("norm", 0, 90'000, 20.0),
                                        timeline_kernel("product", 0, 140'000, 60.0)};
  const OpTimeline timeline = place_ops(step, kernels);
  expect_span(timeline.ops[0].span, 100'000, 110'000);
  expect_span(timeline.ops[1].span, 140'000, 150'000);
  step.ops[1].us = 1e6;  // longer than the step
  const OpTimeline sums = place_ops(step, {});
  expect_span(sums.ops[1].span, 100'000, 150'000);
}

TEST(OpTimelineTest, AStepWithoutOpsHasNone) {
  StepSummary step = timeline_step();
  step.ops.clear();
  EXPECT_EQ(place_ops(step, {}).times, OpTimes::none);
}

}  // namespace
}  // namespace minfer
