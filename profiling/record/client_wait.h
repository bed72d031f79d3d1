#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace minfer {

/// How long the answer to a request has waited for the client to take earlier data, and whether the client has finished. The sending
/// thread sets it; any thread reads it.
class ClientWait {
 public:
  void begin(int64_t now_ns) { since_ns_.store(now_ns, std::memory_order_relaxed); }
  /// Does nothing if the answer is not waiting.
  void end(int64_t now_ns) {
    const int64_t since_ns = since_ns_.exchange(0, std::memory_order_relaxed);
    if (since_ns > 0) total_ns_.fetch_add(std::max<int64_t>(0, now_ns - since_ns), std::memory_order_relaxed);
  }
  /// The client has taken the whole answer or has gone, so the answer waits no more.
  void finish(int64_t now_ns) {
    end(now_ns);
    finished_.store(true, std::memory_order_release);
  }
  bool is_waiting() const { return since_ns_.load(std::memory_order_relaxed) > 0; }
  bool is_finished() const { return finished_.load(std::memory_order_acquire); }
  int64_t until(int64_t now_ns) const {
    const int64_t since_ns = since_ns_.load(std::memory_order_relaxed);
    return total_ns_.load(std::memory_order_relaxed) + (since_ns > 0 ? now_ns - since_ns : 0);
  }

 private:
  std::atomic<int64_t> since_ns_{0};  ///< 0: not waiting
  std::atomic<int64_t> total_ns_{0};
  std::atomic<bool> finished_{false};
};

}  // namespace minfer
