#include "profiling/report/device/device_use.h"

#include <cmath>

#include <gtest/gtest.h>

namespace minfer {
namespace {

StepSummary step_with_a_copy() {
  StepSummary step;
  step.on_device = true;
  step.wall_us = 100.0;
  step.gpu_us = 70.0;
  step.idle_host_us = 8.0;
  step.host_us[static_cast<size_t>(HostSpan::schedule)] = 5.0;
  step.host_us[static_cast<size_t>(HostSpan::launch)] = 4.0;
  step.host_us[static_cast<size_t>(HostSpan::wait)] = 85.0;
  step.ops.push_back({.op = "qkv", .us = 60.0, .launches = {}});
  step.ops.push_back({.op = "step_inputs", .us = 10.0, .launches = {}});
  return step;
}

TEST(StepBreakdown, EachInstantOnce) {
  const StepBreakdown parts = breakdown_of(step_with_a_copy(), {"step_inputs"});
  EXPECT_DOUBLE_EQ(parts.kernel_us, 60.0);
  EXPECT_DOUBLE_EQ(parts.memcpy_us, 10.0);
  EXPECT_DOUBLE_EQ(parts.launch_us, 8.0);
  EXPECT_DOUBLE_EQ(parts.host_us, 9.0) << "not the wait";
  EXPECT_DOUBLE_EQ(parts.idle_us, 13.0);
  StepSummary longer = step_with_a_copy();
  longer.gpu_us = 200.0;  // the device began before the step did
  const StepBreakdown clamped = breakdown_of(longer, {"step_inputs"});
  EXPECT_DOUBLE_EQ(clamped.kernel_us, 100.0);
  EXPECT_DOUBLE_EQ(clamped.memcpy_us + clamped.launch_us + clamped.host_us + clamped.idle_us, 0.0);
}

TEST(DeviceUse, ByTheLaunchTable) {
  Aggregator sums;
  StepSummary step = step_with_a_copy();
  step.ops[0].launches = {0};
  sums.add(step);
  KernelLaunch launch{.kernel = "row_product", .path = {}};
  launch.blocks_per_sm = 4;
  launch.occupancy = 0.5;
  launch.waves = 0.125;  // half a block on each multiprocessor
  const DeviceUse use = device_use(sums.result(), {launch}, {}, {});
  EXPECT_DOUBLE_EQ(use.utilisation, 0.7);
  EXPECT_DOUBLE_EQ(use.sm_efficiency, 0.5 * 60.0 / 100.0);
  EXPECT_DOUBLE_EQ(use.occupancy, 0.125 * 0.5);
  EXPECT_TRUE(std::isnan(use.traced_utilisation));
  EXPECT_TRUE(std::isnan(use.measured_sm_active));
  CounterAggregate counters;
  CounterWork& work = counters.work.emplace_back();
  work.steps = 3;
  CounterOp& op = work.ops.emplace_back();
  op.us = 10.0;
  op.measured[Counter::sm_active] = 0.8;
  EXPECT_DOUBLE_EQ(device_use(sums.result(), {launch}, {}, counters).measured_sm_active, 0.8);
}

}  // namespace
}  // namespace minfer
