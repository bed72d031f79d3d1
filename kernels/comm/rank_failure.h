#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/base/error.h"

namespace minfer {

/// Tells the ranks that one has failed, so that the others stop waiting for it. Any thread.
class RankFailure {
 public:
  /// Only the first reason is kept.
  void set(std::string why) {
    const std::lock_guard lock(mutex_);
    if (is_set()) return;
    why_ = std::move(why);
    is_set_.store(true, std::memory_order_release);
  }
  bool is_set() const { return is_set_.load(std::memory_order_acquire); }
  std::string reason() const {  ///< empty: no rank has failed
    const std::lock_guard lock(mutex_);
    return why_;
  }
  /// Throws DeviceError with the reason if a rank has failed.
  void check() const {
    if (is_set()) throw DeviceError(reason());
  }

 private:
  mutable std::mutex mutex_;
  std::string why_;
  std::atomic<bool> is_set_ = false;
};

}  // namespace minfer
