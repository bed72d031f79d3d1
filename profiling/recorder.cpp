#include "profiling/recorder.h"

#include <algorithm>
#include <utility>

namespace minfer {
namespace {

constexpr size_t kMinRecords = 16;
constexpr size_t kMaxRecords = 4096;

size_t records_in(size_t ring_bytes, size_t num_ops) {
  return std::clamp(ring_bytes / record_bytes(num_ops), kMinRecords, kMaxRecords);
}

int64_t device_ns(const StepStamps& stamps) {
  return stamps.ops.empty() ? 0 : stamps.end_ns - stamps.ops.front().begin_ns;
}

}  // namespace

StepRecorder::StepRecorder(const RecorderOptions& options)
    : reserved_ops_(options.num_ops), ring_(records_in(options.ring_bytes, options.num_ops)) {
  reserve_stamps(current_, reserved_ops_);
  for (StepRecord& record : ring_)
    reserve_stamps(record, reserved_ops_);
}

void StepRecorder::reset() {
  const std::lock_guard lock(ring_mutex_);
  recording_ = false;
  next_step_ = 0;
  kept_ = 0;
  dropped_.store(0, std::memory_order_relaxed);
}

void StepRecorder::begin_step() {
  recording_ = enabled_;
  const int64_t step = next_step_++;
  if (!recording_) return;
  current_.clear();
  current_.step = step;
  current_.start_ns = now_ns();
}

void StepRecorder::end_step() {
  if (!recording_) return;
  int64_t& launch_ns = current_.host_ns[static_cast<size_t>(HostSpan::launch)];
  launch_ns = std::max<int64_t>(0, launch_ns - device_ns(current_.stamps));
  current_.end_ns = now_ns();
  recording_ = false;
  if (sink_ != nullptr) sink_->consume(current_);
  keep_current();
}

void StepRecorder::cancel_step() {
  recording_ = false;
  --next_step_;
}

// Swaps instead of copying: the slot's old memory becomes the next step's.
void StepRecorder::keep_current() {
  current_.requests.clear();
  const std::unique_lock lock(ring_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  StepRecord& slot = ring_[kept_++ % ring_.size()];
  std::swap(slot, current_);
  std::swap(slot.requests, current_.requests);
}

// Takes the lock for one record at a time, and allocates outside it, so that it is held some 100 ns.
std::vector<StepRecord> StepRecorder::last(size_t count) const {
  uint64_t end = 0;
  {
    const std::lock_guard lock(ring_mutex_);
    end = kept_;
  }
  const uint64_t available = std::min<uint64_t>(end, ring_.size());
  std::vector<StepRecord> records;
  records.reserve(static_cast<size_t>(std::min<uint64_t>(count, available)));
  for (uint64_t i = end - std::min<uint64_t>(count, available); i < end; ++i) {
    StepRecord copy;
    copy.stamps.ops.reserve(reserved_ops_);
    const std::lock_guard lock(ring_mutex_);
    if (kept_ > i + ring_.size() || kept_ <= i) continue;  // overwritten or reset since
    copy = ring_[i % ring_.size()];
    records.push_back(std::move(copy));
  }
  return records;
}

}  // namespace minfer
