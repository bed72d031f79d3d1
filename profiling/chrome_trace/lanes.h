#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "profiling/chrome_trace/trace_events.h"

namespace minfer {

/// Spreads spans over as many rows as needed, so that the spans of a row ascend and do not overlap.
class Lanes {
 public:
  /// Returns the first row whose last span has ended when this span begins.
  size_t place(TimeSpan span) {
    size_t lane = 0;
    while (lane < ends_ns_.size() && ends_ns_[lane] > span.begin_ns)
      ++lane;
    if (lane == ends_ns_.size()) ends_ns_.push_back(std::numeric_limits<int64_t>::min());
    ends_ns_[lane] = span.end_ns;
    return lane;
  }

 private:
  std::vector<int64_t> ends_ns_;  ///< of each row's last span
};

}  // namespace minfer
