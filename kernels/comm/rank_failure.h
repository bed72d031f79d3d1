#pragma once

#include <atomic>
#include <mutex>
#include <string>

namespace minfer {

/// Tells the ranks that one has failed, so that the others stop waiting for it. Any thread.
class RankFailure {
 public:
  /// Only the first reason is kept.
  void set(std::string why);
  bool is_set() const { return is_set_.load(std::memory_order_acquire); }
  std::string reason() const;  ///< empty: no rank has failed
  /// Throws DeviceError with the reason if a rank has failed.
  void check() const {
    if (is_set()) throw_reason();
  }

 private:
  [[noreturn]] void throw_reason() const;

  mutable std::mutex mutex_;
  std::string why_;
  std::atomic<bool> is_set_ = false;
};

}  // namespace minfer
