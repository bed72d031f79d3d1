#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiling/record/step_record.h"

namespace minfer {

/// A bounded queue of step records from one thread to another, without locks. Its slots are allocated once
/// and reused.
class RecordQueue {
 public:
  /// Holds as many records of `num_ops` stamps as fit in `bytes`, 16 at least.
  RecordQueue(size_t bytes, size_t num_ops);

  /// Producer. False: full, nothing was added.
  bool push(const StepRecord& record);
  /// Consumer. The oldest record, valid until pop(); null: empty.
  const StepRecord* front() const;
  void pop();

  size_t capacity() const { return slots_.size(); }

 private:
  std::vector<StepRecord> slots_;
  alignas(64) std::atomic<uint64_t> pushed_{0};
  alignas(64) std::atomic<uint64_t> popped_{0};
};

}  // namespace minfer
