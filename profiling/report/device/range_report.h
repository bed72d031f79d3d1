#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "profiling/text/table.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// The result of a traced range (profiler tier 1), in a sentence.
std::string range_sentence(const RangeLine& range);

/// The device's idle time in the range, by cause, and the ops with most idle time before them. No rows if there was none, or if a file
/// of an older version does not say.
Table range_idle_table(const RangeLine& range);
Table idle_ops_table(const RangeLine& range);

/// The range's ops by stamps (tier 0) against their kernels by the driver.
Table attribution_table(const RangeLine& range);

/// How far the host was ahead of the device in traced steps.
struct LaunchDelays {
  int64_t kernels = 0;
  double sum_us = 0.0;  ///< from the call that launched the kernel, or its graph, to its begin
  double max_us = 0.0;

  double mean_us() const { return kernels > 0 ? sum_us / static_cast<double>(kernels) : 0.0; }
};

/// Sums over kernels as they come.
class LaunchQueue {
 public:
  void add(const KernelLine& kernel);
  bool is_empty() const { return by_graph_[0].kernels + by_graph_[1].kernels == 0; }
  const LaunchDelays& delays(bool in_graph) const { return by_graph_[in_graph ? 1 : 0]; }
  /// The mean number of launched kernels that had not begun (Little's law: the sum of the kernels' waits, over the time).
  double mean_depth(bool in_graph) const;

 private:
  std::array<LaunchDelays, 2> by_graph_;
  double time_us_ = 0.0;  ///< time of traced steps, busy and idle
};

Table launch_queue_table(const LaunchQueue& queue);

}  // namespace minfer
