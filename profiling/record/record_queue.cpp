#include "profiling/record/record_queue.h"

#include <algorithm>

namespace minfer {
namespace {

constexpr size_t kMinQueuedRecords = 16;

}  // namespace

RecordQueue::RecordQueue(size_t bytes, size_t num_ops)
    : slots_(std::max(kMinQueuedRecords, bytes / record_bytes(num_ops))) {
  for (StepRecord& slot : slots_)
    reserve_stamps(slot, num_ops);
}

bool RecordQueue::push(const StepRecord& record) {
  const uint64_t pushed = pushed_.load(std::memory_order_relaxed);
  if (pushed - popped_.load(std::memory_order_acquire) == slots_.size()) return false;
  slots_[pushed % slots_.size()] = record;
  pushed_.store(pushed + 1, std::memory_order_release);
  return true;
}

const StepRecord* RecordQueue::front() const {
  const uint64_t popped = popped_.load(std::memory_order_relaxed);
  if (popped == pushed_.load(std::memory_order_acquire)) return nullptr;
  return &slots_[popped % slots_.size()];
}

void RecordQueue::pop() {
  popped_.store(popped_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace minfer
