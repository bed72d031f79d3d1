#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace minfer {

/// How far this host's monotonic clock is ahead of the first rank's on another host, measured by the orders that come
/// from there. An order cannot be received before it is sent. So the least difference of the last 256 to 512 orders
/// is the difference of the clocks plus the shortest way of an order. Times brought to the first rank's clock are
/// early by that way, some tens of microseconds. The clocks drift against each other, so older orders do not count.
class OrderClock {
 public:
  void add(int64_t sent_ns, int64_t received_ns) {
    if (count_++ % kOrders == 0) {
      before_ns_ = least_ns_;
      least_ns_ = kNone;
    }
    least_ns_ = std::min(least_ns_, received_ns - sent_ns);
  }
  /// 0 before the first order.
  int64_t ahead_ns() const { return count_ == 0 ? 0 : std::min(least_ns_, before_ns_); }

 private:
  static constexpr uint64_t kOrders = 256;
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  uint64_t count_ = 0;
  int64_t least_ns_ = kNone;   ///< of the orders since the last whole 256
  int64_t before_ns_ = kNone;  ///< of those 256
};

}  // namespace minfer
