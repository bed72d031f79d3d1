#include "profiling/record/record_queue.h"

#include <algorithm>

namespace minfer {
namespace {

constexpr size_t kMinQueuedRecords = 16;

}  // namespace

RecordQueue::RecordQueue(size_t bytes, size_t num_ops)
    : BoundedQueue(std::max(kMinQueuedRecords, bytes / record_bytes(num_ops))) {
  for (StepRecord& slot : slots_)
    reserve_stamps(slot, num_ops);
}

}  // namespace minfer
