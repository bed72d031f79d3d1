#include "profiling/report/device/launch_queue.h"

#include <algorithm>
#include <string>

namespace minfer {

void LaunchQueue::add(const KernelLine& kernel) {
  time_us_ += kernel.own_us + kernel.gap_us;
  if (kernel.kind != ActivityKind::kernel || kernel.launch_delay_us < 0.0) return;
  LaunchDelays& delays = by_graph_[kernel.in_graph ? 1 : 0];
  ++delays.kernels;
  delays.sum_us += kernel.launch_delay_us;
  delays.max_us = std::max(delays.max_us, kernel.launch_delay_us);
}

double LaunchQueue::mean_depth(bool in_graph) const {
  return time_us_ > 0.0 ? delays(in_graph).sum_us / time_us_ : 0.0;
}

Table launch_queue_table(const LaunchQueue& queue) {
  Table table{"From launch to begin (us; queue: kernels launched but not begun, mean over time)",
              {"launched", "kernels", "mean", "max", "queue"}};
  for (const bool in_graph : {false, true}) {
    const LaunchDelays& delays = queue.delays(in_graph);
    if (delays.kernels == 0) continue;
    table.add(in_graph ? "in a graph" : "each by itself", delays.kernels, delays.mean_us(), delays.max_us,
              queue.mean_depth(in_graph));
  }
  return table;
}

}  // namespace minfer
