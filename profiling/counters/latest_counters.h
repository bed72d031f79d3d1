#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "profiling/counters/counter_window.h"

namespace minfer {

/// The last windows of hardware counters, for those who look on. Any thread.
class LatestCounters {
 public:
  static constexpr size_t kMost = 8;

  void add(const CounterWindow& window) {
    const std::lock_guard lock(mutex_);
    if (windows_.size() == kMost) windows_.erase(windows_.begin());
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
