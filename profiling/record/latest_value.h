#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

namespace minfer {

/// Passes the newest value from one thread to another; neither thread ever waits. There are three values: the writer's, the
/// reader's and the one between them, which either thread swaps with its own in one atomic step (a triple buffer).
template <class Value>
class LatestValue {
 public:
  /// Visits all three values; call it before the threads begin.
  void for_each(const std::function<void(Value&)>& visit) {
    for (Value& value : values_)
      visit(value);
  }

  /// Writer: the value to fill for the next publish(). It still holds its old contents.
  Value& writers() { return values_[writers_]; }
  /// Writer: gives writers() to the reader. Returns true if that replaces a value that the reader has not taken.
  bool publish() {
    const uint8_t between =
        between_.exchange(static_cast<uint8_t>(writers_ | kNew), std::memory_order_acq_rel);
    writers_ = between & ~kNew;
    return (between & kNew) != 0;
  }

  /// Reader: the newest value; null if none is new since the last call. The pointer is valid until the next call.
  Value* take() {
    if ((between_.load(std::memory_order_relaxed) & kNew) == 0) return nullptr;
    readers_ = between_.exchange(readers_, std::memory_order_acq_rel) & ~kNew;
    return &values_[readers_];
  }

 private:
  static constexpr uint8_t kNew = 4;  ///< a flag in between_, beside the index: not taken yet

  std::array<Value, 3> values_;
  uint8_t writers_ = 0;
  std::atomic<uint8_t> between_{1};
  uint8_t readers_ = 2;
};

}  // namespace minfer
