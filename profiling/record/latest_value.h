#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

namespace minfer {

/// Hands the newest of a row of values from one thread to another, and neither ever waits. Three values exist: the writer's, the
/// reader's and the one between them, which is swapped with either in one step (a triple buffer).
template <class Value>
class LatestValue {
 public:
  /// Before the threads begin.
  void for_each(const std::function<void(Value&)>& visit) {
    for (Value& value : values_)
      visit(value);
  }

  /// Writer: the value to fill for the next publish(). It holds what was left in it.
  Value& writers() { return values_[writers_]; }
  /// Writer: the reader gets writers() next. True if it replaces a value that the reader has not taken.
  bool publish() {
    const uint8_t between =
        between_.exchange(static_cast<uint8_t>(writers_ | kNew), std::memory_order_acq_rel);
    writers_ = between & ~kNew;
    return (between & kNew) != 0;
  }

  /// Reader: the newest value; null if there is none since the last call. Stays in place until the next call.
  Value* take() {
    if ((between_.load(std::memory_order_relaxed) & kNew) == 0) return nullptr;
    readers_ = between_.exchange(readers_, std::memory_order_acq_rel) & ~kNew;
    return &values_[readers_];
  }

 private:
  static constexpr uint8_t kNew = 4;  ///< beside the index in between_: not taken yet

  std::array<Value, 3> values_;
  uint8_t writers_ = 0;
  std::atomic<uint8_t> between_{1};
  uint8_t readers_ = 2;
};

}  // namespace minfer
