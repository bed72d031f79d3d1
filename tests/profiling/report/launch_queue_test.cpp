#include <gtest/gtest.h>

#include "profiling/report/device/range_report.h"

namespace minfer {
namespace {

KernelLine launched_kernel(double own_us, double gap_us, double delay_us, bool in_graph) {
  KernelLine kernel;
  kernel.own_us = own_us;
  kernel.gap_us = gap_us;
  kernel.launch_delay_us = delay_us;
  kernel.in_graph = in_graph;
  return kernel;
}

TEST(LaunchQueue, DepthIsWhatWaitedOverTheTime) {
  LaunchQueue queue;
  EXPECT_TRUE(queue.is_empty());
  // Four are launched at once and take 10 us each: they wait 0, 10, 20 and 30 us within 40 us.
  for (int i = 0; i < 4; ++i)
    queue.add(launched_kernel(10.0, 0.0, 10.0 * i, true));
  EXPECT_DOUBLE_EQ(queue.mean_depth(true), 1.5);
  EXPECT_DOUBLE_EQ(queue.delays(true).mean_us(), 15.0);
  EXPECT_DOUBLE_EQ(queue.delays(true).max_us, 30.0);
  KernelLine copy = launched_kernel(5.0, 5.0, 3.0, false);
  copy.kind = ActivityKind::memcpy;
  queue.add(copy);
  queue.add(launched_kernel(10.0, 0.0, 2.0, false));
  KernelLine unknown = launched_kernel(0.0, 0.0, -1.0, false);
  queue.add(unknown);
  EXPECT_EQ(queue.delays(false).kernels, 1) << "copies and unknown launches do not count";
  EXPECT_DOUBLE_EQ(queue.mean_depth(false), 2.0 / 60.0);
  const Table table = launch_queue_table(queue);
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0][0], "each by itself");
}

}  // namespace
}  // namespace minfer
