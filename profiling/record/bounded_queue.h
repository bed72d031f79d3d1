#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace minfer {

/// A bounded queue from one thread to another, without locks. Its slots are made once and assigned to, so that what they own is reused.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t slots) : slots_(slots) {}

  /// Producer. False: full, nothing was added.
  bool push(const T& item) {
    const uint64_t pushed = pushed_.load(std::memory_order_relaxed);
    if (pushed - popped_.load(std::memory_order_acquire) == slots_.size()) return false;
    slots_[pushed % slots_.size()] = item;
    pushed_.store(pushed + 1, std::memory_order_release);
    return true;
  }
  /// Consumer. The oldest item, valid until pop(); null: empty.
  const T* front() const {
    const uint64_t popped = popped_.load(std::memory_order_relaxed);
    if (popped == pushed_.load(std::memory_order_acquire)) return nullptr;
    return &slots_[popped % slots_.size()];
  }
  void pop() { popped_.store(popped_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

  size_t capacity() const { return slots_.size(); }

 protected:
  std::vector<T> slots_;

 private:
  alignas(64) std::atomic<uint64_t> pushed_{0};
  alignas(64) std::atomic<uint64_t> popped_{0};
};

}  // namespace minfer
