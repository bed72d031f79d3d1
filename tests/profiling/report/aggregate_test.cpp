#include "profiling/summary/aggregate.h"

#include <gtest/gtest.h>

#include "profiling/report/report.h"
#include "tests/support/profiling/report_of_file.h"

namespace minfer {
namespace {

// A step of one phase with a single op of `calls` calls.
StepSummary step_of(int64_t number, double wall_us, StepPhase phase, double op_us, int32_t calls) {
  StepSummary step;
  step.step = number;
  step.wall_us = wall_us;
  step.gpu_us = op_us;
  step.host_us[static_cast<size_t>(HostSpan::build)] = 1.0;
  step.batch.shape.prefill_tokens = phase == StepPhase::decode ? 0 : 10;
  step.batch.shape.decode_tokens = phase == StepPhase::prefill ? 0 : 3;
  (phase == StepPhase::prefill ? step.prefill : step.decode) = {op_us, phase == StepPhase::prefill ? 10 : 3};
  step.ops.push_back({.op = "qkv",
                      .phase = phase,
                      .calls = calls,
                      .us = op_us,
                      .bytes = 1'000 * calls,
                      .flops = 2'000 * calls,
                      .floor_us = op_us / 4,
                      .bound = Bound::memory,
                      .launches = {}});
  step.attributed = (op_us + 1.0) / wall_us;
  return step;
}

std::vector<StepSummary> three_steps() {
  std::vector<StepSummary> steps{step_of(0, 10.0, StepPhase::decode, 8.0, 2),
                                 step_of(1, 20.0, StepPhase::decode, 18.0, 2),
                                 step_of(2, 40.0, StepPhase::prefill, 24.0, 2)};
  steps[1].dropped = 5;
  steps[2].dropped = 5;
  return steps;
}

TEST(Aggregate, StepsByHand) {
  const Aggregate sum = aggregate(three_steps());
  EXPECT_EQ(sum.all.steps, 3);
  EXPECT_DOUBLE_EQ(sum.all.wall_us, 70.0);
  EXPECT_DOUBLE_EQ(sum.all.gpu_us, 50.0);
  EXPECT_DOUBLE_EQ(sum.all.host_us[static_cast<size_t>(HostSpan::build)], 3.0);
  EXPECT_DOUBLE_EQ(sum.all.other_us(), 17.0);
  EXPECT_EQ(sum.all.tokens(), 16);
  EXPECT_DOUBLE_EQ(sum.all.tokens_per_s(), 16.0 / 70e-6);
  EXPECT_DOUBLE_EQ(sum.all.step_us.median, 20.0);
  EXPECT_EQ(sum.by_phase[static_cast<size_t>(StepPhase::decode)].steps, 2);
  EXPECT_EQ(sum.by_phase[static_cast<size_t>(StepPhase::prefill)].steps, 1);
  EXPECT_EQ(sum.by_phase[static_cast<size_t>(StepPhase::mixed)].steps, 0);
  EXPECT_DOUBLE_EQ(sum.prefill.us, 24.0);
  EXPECT_EQ(sum.prefill.tokens, 10);
  EXPECT_DOUBLE_EQ(sum.decode.us, 26.0);
  EXPECT_EQ(sum.decode.tokens, 6);
  EXPECT_DOUBLE_EQ(sum.attributed, (9.0 + 19.0 + 25.0) / 70.0);
  EXPECT_DOUBLE_EQ(sum.least_attributed, 25.0 / 40.0);
  EXPECT_EQ(sum.dropped, 5u);  // each line has the count so far
}

TEST(Aggregate, OpsByHand) {
  const Aggregate sum = aggregate(three_steps());
  ASSERT_EQ(sum.ops.size(), 1u);
  const OpAggregate& op = sum.ops[0];
  EXPECT_EQ(op.calls, 6);
  EXPECT_DOUBLE_EQ(op.us, 50.0);
  EXPECT_DOUBLE_EQ(op.mean_us(), 50.0 / 6);
  EXPECT_DOUBLE_EQ(op.call_us.mean, 50.0 / 6);
  EXPECT_DOUBLE_EQ(op.call_us.median, 9.0);  // median of 4, 9 and 12 us a call
  EXPECT_DOUBLE_EQ(op.call_us.min, 4.0);
  EXPECT_DOUBLE_EQ(op.call_us.max, 12.0);
  EXPECT_DOUBLE_EQ(op.gbps(), 6'000 / 50.0 * 1e-3);
  EXPECT_DOUBLE_EQ(op.tflops(), 12'000 / 50.0 * 1e-6);
  EXPECT_DOUBLE_EQ(op.roofline(), 0.25);
  EXPECT_DOUBLE_EQ(op.above_floor_us(), 37.5);
  EXPECT_EQ(op.bound, Bound::memory);
}

TEST(Aggregate, TakesTheBoundOfMostTime) {
  std::vector<StepSummary> steps = three_steps();
  steps[2].ops[0].bound = Bound::compute;
  EXPECT_EQ(aggregate(steps).ops[0].bound, Bound::memory);  // 26 us against 24
  steps[1].ops[0].bound = Bound::compute;
  EXPECT_EQ(aggregate(steps).ops[0].bound, Bound::compute);
}

TEST(Aggregate, OfOnePhase) {
  const Aggregate sum = aggregate(three_steps(), StepPhase::decode);
  EXPECT_EQ(sum.all.steps, 2);
  EXPECT_DOUBLE_EQ(sum.all.wall_us, 30.0);
  EXPECT_EQ(sum.prefill.tokens, 0);
  EXPECT_EQ(aggregate(three_steps(), StepPhase::mixed).all.steps, 0);
}

OpAggregate op_of(std::string op, int64_t calls, double us, double floor_us, double max) {
  OpAggregate sum;
  sum.op = std::move(op);
  sum.calls = calls;
  sum.us = us;
  sum.bytes = static_cast<int64_t>(floor_us * 1e3);
  sum.floor_us = floor_us;
  sum.bound = Bound::memory;
  sum.call_us.max = max;
  return sum;
}

std::string order(ReportSort sort, size_t top = 0) {
  Aggregate sum;
  sum.ops = {op_of("b", 10, 100.0, 90.0, 11.0), op_of("a", 30, 60.0, 6.0, 50.0),
             op_of("c", 1, 40.0, 20.0, 40.0)};
  std::string names;
  for (const OpAggregate& op : listed_ops(sum, {.sort = sort, .top = top}))
    names += op.op;
  return names;
}

TEST(ListedOps, EveryKey) {
  EXPECT_EQ(order(ReportSort::time), "bac");
  EXPECT_EQ(order(ReportSort::calls), "abc");
  EXPECT_EQ(order(ReportSort::mean), "cba");
  EXPECT_EQ(order(ReportSort::max), "acb");
  EXPECT_EQ(order(ReportSort::gbps), "bca");
  EXPECT_EQ(order(ReportSort::roofline), "acb");
  EXPECT_EQ(order(ReportSort::name), "abc");
  EXPECT_EQ(order(ReportSort::time, 2), "ba");
}

TEST(SlowestSteps, LongestFirst) {
  const auto slowest = [](size_t count) {
    SlowestSteps steps(count);
    for (const StepSummary& step : three_steps())
      steps.add(step);
    std::string numbers;
    for (const StepSummary& step : steps.steps())
      numbers += std::to_string(step.step);
    return numbers;
  };
  EXPECT_EQ(slowest(2), "21");
  EXPECT_EQ(slowest(5), "210");
  EXPECT_EQ(slowest(0), "");
}

}  // namespace
}  // namespace minfer
