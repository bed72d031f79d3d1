#pragma once

#include <algorithm>
#include <cstddef>

#include "profiling/record/bounded_queue.h"
#include "profiling/record/step_record.h"

namespace minfer {

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
