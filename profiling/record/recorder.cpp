#include "profiling/record/recorder.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <unistd.h>

namespace minfer {
namespace {

constexpr size_t kMinRecords = 16;
constexpr size_t kMaxRecords = 4096;

size_t records_in(size_t ring_bytes, size_t num_ops) {
  return std::clamp(ring_bytes / record_bytes(num_ops), kMinRecords, kMaxRecords);
}

/// The time of the ops, without the gaps in front of ops with their own launch.
int64_t device_ns(const StepStamps& stamps) {
  if (stamps.ops.empty()) return 0;
  int64_t ns = stamps.end_ns - stamps.ops.front().begin_ns;
  for (size_t i = 1; i < stamps.ops.size(); ++i) {
    if (stamps.ops[i].launched_ns > 0 && stamps.ops[i - 1].end_ns > 0)
      ns -= stamps.ops[i].begin_ns - stamps.ops[i - 1].end_ns;
  }
  return ns;
}

/// Without the request ids, which stay where they are.
void swap_contents(StepRecord& a, StepRecord& b) {
  std::swap(a, b);
  std::swap(a.requests, b.requests);
}

}  // namespace

StepRecorder::StepRecorder(const RecorderOptions& options)
    : asynchronous_(options.asynchronous),
      reserved_ops_(options.num_ops),
      ring_(records_in(options.ring_bytes, options.num_ops)) {
  for (OpenStep& step : open_)
    reserve_stamps(step.record, reserved_ops_);
  for (StepRecord& record : ring_)
    reserve_stamps(record, reserved_ops_);
  late_.for_each([&](StepRecord& record) { reserve_stamps(record, reserved_ops_); });
}

void StepRecorder::reset() {
  const std::lock_guard lock(ring_mutex_);
  num_open_ = 0;
  newest().recording = false;
  next_step_ = 0;
  late_.take();
  kept_ = 0;
  dropped_.store(0, std::memory_order_relaxed);
}

void StepRecorder::begin_step() {
  if (num_open_ == kMostOpenSteps) throw std::logic_error("begin_step: too many steps are open");
  ++num_open_;
  thread_local const int32_t this_thread = ::gettid();
  engine_thread_.store(this_thread, std::memory_order_relaxed);
  OpenStep& step = newest();
  step.recording = enabled_;
  const int64_t number = next_step_++;
  if (!step.recording) return;
  step.record.clear();
  step.record.step = number;
  step.record.start_ns = now_ns();
}

void StepRecorder::set_launched(const LaunchedStep& launched) {
  newest().record.batch.padded_tokens = launched.padded_tokens;
  newest().record.batch.graph_batch = launched.graph_batch;
}

void StepRecorder::end_request(const EndedRequest& request) {
  for (StepSink* sink : sinks_)
    sink->consume_request(request);
}

void StepRecorder::end_step() {
  OpenStep& step = open_[oldest_];
  oldest_ = (oldest_ + 1) % kMostOpenSteps;
  --num_open_;
  if (!step.recording) return;
  step.recording = false;
  set_wall_time(step.record);
  for (StepSink* sink : sinks_)
    sink->consume(step.record);
  keep(step.record);
}

void StepRecorder::set_wall_time(StepRecord& record) {
  if (asynchronous_ && !record.stamps.ops.empty()) {
    record.on_device = true;
    record.queued = device_end_ns_ > record.start_ns;
    if (record.queued) record.start_ns = device_end_ns_;
    record.end_ns = device_end_ns_ = record.stamps.end_ns;
    return;
  }
  int64_t& launch_ns = record.host_ns[static_cast<size_t>(HostSpan::launch)];
  launch_ns = std::max<int64_t>(0, launch_ns - device_ns(record.stamps));
  record.end_ns = now_ns();
}

void StepRecorder::cancel_step() {
  newest().recording = false;
  --num_open_;
  --next_step_;
}

void StepRecorder::keep(StepRecord& record) {
  record.requests.clear();
  const std::unique_lock lock(ring_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    // A step that waits already is replaced: the newest is what readers wait for.
    swap_contents(late_.writers(), record);
    if (late_.publish()) dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  put_late_into_ring();
  put_into_ring(record);
}

// Swaps instead of copying: the old memory becomes the next step's.
void StepRecorder::put_into_ring(StepRecord& record) const {
  swap_contents(ring_[kept_++ % ring_.size()], record);
}

// With the ring held.
void StepRecorder::put_late_into_ring() const {
  if (StepRecord* late = late_.take()) put_into_ring(*late);
}

// Takes the lock for one record at a time, and allocates outside it, so that it is held some 100 ns.
std::vector<StepRecord> StepRecorder::after(int64_t step) const {
  uint64_t begin = 0;
  uint64_t end = 0;
  {
    const std::lock_guard lock(ring_mutex_);
    put_late_into_ring();
    end = kept_;
    begin = end - std::min<uint64_t>(end, ring_.size());
    for (uint64_t later = end; begin < later;) {
      const uint64_t middle = begin + (later - begin) / 2;
      const bool is_before = ring_[middle % ring_.size()].step <= step;
      (is_before ? begin : later) = is_before ? middle + 1 : middle;
    }
  }
  std::vector<StepRecord> records;
  records.reserve(static_cast<size_t>(end - begin));
  for (uint64_t i = begin; i < end; ++i) {
    StepRecord copied;
    copied.stamps.ops.reserve(reserved_ops_);
    copied.stamps.launches.reserve(reserved_ops_ * kLaunchesOfOp);
    copied.served.reserve(records.empty() ? 0 : records.back().served.size());
    const std::lock_guard lock(ring_mutex_);
    if (kept_ > i + ring_.size() || kept_ <= i) continue;  // overwritten or reset since
    copied = ring_[i % ring_.size()];
    records.push_back(std::move(copied));
  }
  return records;
}

}  // namespace minfer
