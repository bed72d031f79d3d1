#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <vector>

#include "profiling/counters/counter_window.h"

namespace minfer {

/// The last windows of hardware counters of each rank, for viewers. Any thread.
class LatestCounters {
 public:
  static constexpr std::ptrdiff_t kMost = 8;  ///< for each rank

  void add(const CounterWindow& window) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::count(windows_, window.rank, &CounterWindow::rank) == kMost)
      windows_.erase(std::ranges::find(windows_, window.rank, &CounterWindow::rank));
    windows_.push_back(window);
  }
  /// Oldest first.
  std::vector<CounterWindow> all() const {
    const std::lock_guard lock(mutex_);
    return windows_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<CounterWindow> windows_;
};

}  // namespace minfer
