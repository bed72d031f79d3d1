#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "profiling/step_record.h"

namespace minfer {

/// Takes each finished record, on the engine thread, and returns at once: it copies what it needs and never
/// blocks.
class StepSink {
 public:
  virtual ~StepSink() = default;
  virtual void consume(const StepRecord& record) noexcept = 0;
};

struct RecorderOptions {
  size_t num_ops = 0;            ///< rows of the op table: so many stamps are reserved in every record
  size_t ring_bytes = 8u << 20;  ///< memory for past records; it holds 16 to 4,096 of them
};

/// Records every step of the engine (profiler tier 0): keeps the last ones in a preallocated ring and hands
/// each to a sink.
///
///     recorder.begin_step();
///     { SpanTimer span(recorder, HostSpan::schedule); ... }
///     recorder.set_batch(batch);
///     { SpanTimer span(recorder, HostSpan::launch); backend.begin_step(recorder.stamps()); ...;
///     backend.end_step(); } recorder.end_step();
///
/// How a step's wall time, begin_step() to end_step(), divides: host spans never nest; the ops, from the
/// first stamp to the stamps' end, are device time. Where ops run inside the call that launches them (the CPU
/// backend), they do so inside the `launch` span, and end_step() takes their time out of it: `launch` is then
/// what the host needed beside the ops, and spans and ops add up to the wall time but for what lies between
/// spans.
///
/// Owned by the engine. All of it is called from the engine thread, except last(), dropped() and capacity(),
/// which any thread may call. The engine thread neither allocates here nor waits: if a reader holds the ring
/// at the very moment a step ends, the ring goes without that step, and dropped() counts it. The sink gets it
/// all the same.
class StepRecorder {
 public:
  explicit StepRecorder(const RecorderOptions& options);
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  /// Not owned; null: none. Between steps only.
  void set_sink(StepSink* sink) { sink_ = sink; }
  /// Whether steps are recorded from the next begin_step() on. Steps are numbered all the same.
  void set_enabled(bool enabled) { enabled_ = enabled; }
  /// Forgets all records and drops and numbers the next step 0, e.g. after a warm-up. Waits for readers.
  void reset();

  void begin_step();
  /// Whether the step in progress is recorded.
  bool recording() const { return recording_; }
  /// Where the backend puts the step's op stamps; null while nothing is recorded.
  StepStamps* stamps() { return recording_ ? &current_.stamps : nullptr; }
  void add_host_ns(HostSpan span, int64_t ns) { current_.host_ns[static_cast<size_t>(span)] += ns; }
  void set_batch(const StepBatch& batch) { current_.batch = batch; }
  /// Whether ids given to add_request() reach anybody: the ring keeps none.
  bool wants_requests() const { return recording_ && sink_ != nullptr; }
  void add_request(std::string_view id) { current_.requests.push_back(id); }
  void end_step();
  /// Ends a step that turned out to have nothing to do, or failed: not recorded, its number is used again.
  void cancel_step();

  /// Copies of the last `count` records at most, oldest first, without request ids.
  std::vector<StepRecord> last(size_t count) const;
  /// Steps that the ring went without, because a reader held it.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  /// Records the ring holds.
  size_t capacity() const { return ring_.size(); }

 private:
  void keep_current();

  StepSink* sink_ = nullptr;
  bool enabled_ = true;
  bool recording_ = false;
  int64_t next_step_ = 0;
  StepRecord current_;
  size_t reserved_ops_;
  mutable std::mutex ring_mutex_;  ///< guards ring_ and kept_; the engine thread only ever tries it
  std::vector<StepRecord> ring_;
  uint64_t kept_ = 0;  ///< records ever kept; the newest is ring_[(kept_ - 1) % ring_.size()]
  std::atomic<uint64_t> dropped_{0};
};

/// Adds the time from its construction to its destruction to a host span of the step in progress.
class SpanTimer {
 public:
  SpanTimer(StepRecorder& recorder, HostSpan span)
      : recorder_(recorder), span_(span), begin_ns_(recorder.recording() ? now_ns() : 0) {}
  ~SpanTimer() {
    if (recorder_.recording()) recorder_.add_host_ns(span_, now_ns() - begin_ns_);
  }
  SpanTimer(const SpanTimer&) = delete;
  SpanTimer& operator=(const SpanTimer&) = delete;

 private:
  StepRecorder& recorder_;
  HostSpan span_;
  int64_t begin_ns_;
};

}  // namespace minfer
