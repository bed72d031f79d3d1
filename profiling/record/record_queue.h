#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

#include "profiling/record/step_record.h"

namespace minfer {

/// A bounded, lock-free queue from one thread to another. The slots are allocated once and assigned to, so their memory is reused.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t slots) : slots_(slots) {}

  /// Producer. Returns false, and adds nothing, if the queue is full, or if there is no memory for an item larger than any before.
  bool push(const T& item) noexcept {
    const uint64_t pushed = pushed_.load(std::memory_order_relaxed);
    if (pushed - popped_.load(std::memory_order_acquire) == slots_.size()) return false;
    try {
      slots_[pushed % slots_.size()] = item;
    } catch (const std::exception&) {
      return false;
    }
    pushed_.store(pushed + 1, std::memory_order_release);
    return true;
  }
  /// Consumer. Returns the oldest item, which is valid until pop(); null: the queue is empty.
  const T* front() const {
    const uint64_t popped = popped_.load(std::memory_order_relaxed);
    if (popped == pushed_.load(std::memory_order_acquire)) return nullptr;
    return &slots_[popped % slots_.size()];
  }
  void pop() { popped_.store(popped_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

 protected:
  std::vector<T> slots_;

 private:
  alignas(64) std::atomic<uint64_t> pushed_{0};
  alignas(64) std::atomic<uint64_t> popped_{0};
};

/// A queue of step records from the engine thread to another thread.
class RecordQueue : public BoundedQueue<StepRecord> {
 public:
  /// Holds as many records of `num_ops` stamps as fit in `bytes`, 16 at least.
  RecordQueue(size_t bytes, size_t num_ops)
      : BoundedQueue(std::max<size_t>(16, bytes / record_bytes(num_ops))) {
    for (StepRecord& slot : slots_)
      reserve_stamps(slot, num_ops);
  }
};

}  // namespace minfer
