#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "profiling/record/ended_request.h"
#include "profiling/record/rank_step.h"
#include "profiling/record/step_record.h"

namespace minfer {

/// Passes the newest value from one thread to another; neither thread ever waits. There are three values: the writer's, the
/// reader's and the one between them, which either thread swaps with its own in one atomic step (a triple buffer).
template <class Value>
class LatestValue {
 public:
  /// Visits all three values; call it before the threads begin.
  void for_each(const std::function<void(Value&)>& visit) {
    for (Value& value : values_)
      visit(value);
  }

  /// Writer: the value to fill for the next publish(). It still holds its old contents.
  Value& writers() { return values_[writers_]; }
  /// Writer: gives writers() to the reader. Returns true if that replaces a value that the reader has not taken.
  bool publish() {
    const uint8_t between =
        between_.exchange(static_cast<uint8_t>(writers_ | kNew), std::memory_order_acq_rel);
    writers_ = between & ~kNew;
    return (between & kNew) != 0;
  }

  /// Reader: the newest value; null if none is new since the last call. The pointer is valid until the next call.
  Value* take() {
    if ((between_.load(std::memory_order_relaxed) & kNew) == 0) return nullptr;
    readers_ = between_.exchange(readers_, std::memory_order_acq_rel) & ~kNew;
    return &values_[readers_];
  }

 private:
  static constexpr uint8_t kNew = 4;  ///< a flag in between_, beside the index: not taken yet

  std::array<Value, 3> values_;
  uint8_t writers_ = 0;
  std::atomic<uint8_t> between_{1};
  uint8_t readers_ = 2;
};

/// Receives each finished record on the engine thread. It copies what it needs, never blocks, and returns at once.
class StepSink {
 public:
  virtual ~StepSink() = default;
  virtual void consume(const StepRecord& record) noexcept = 0;
  /// A request has ended. The record of the last step that served it follows, unless it was cancelled meanwhile.
  virtual void consume_request(const EndedRequest& /*request*/) noexcept {}
  /// One of several ranks has finished a step. The record of that step comes soon, or has come before.
  virtual void consume_rank_step(const RankStep& /*step*/) noexcept {}
  /// True if records should hold the ids of the requests that the step served.
  virtual bool wants_requests() const noexcept { return true; }
  /// True if consume_request() should be called.
  virtual bool wants_ended_requests() const noexcept { return wants_requests(); }
};

struct RecorderOptions {
  size_t num_ops = 0;  ///< most runs of ops in a step; every record reserves as many stamps
  /// Memory for past records, without the 4 bytes for each sequence of a step; the ring holds 16 to 4,096 records.
  size_t ring_bytes = 16u << 20;
  bool asynchronous = false;  ///< ops run in parallel with the host, not inside the call that launches them
};

/// Records every step of the engine (profiler tier 0): keeps the last ones in a preallocated ring and gives each to the sinks.
///
///     recorder.begin_step();
///     { SpanTimer span(recorder, HostSpan::schedule); ... }
///     recorder.set_batch(batch);
///     { SpanTimer span(recorder, HostSpan::launch); backend.launch_step({.stamps = recorder.stamps(), ...}); }
///     { SpanTimer span(recorder, HostSpan::wait); backend.finish_step(...); }
///     recorder.end_step();
///
/// Up to kMostOpenSteps steps may be open: a step may begin and be launched before end_step() is called for the steps in front of it. The
/// spans draft, schedule, build and launch belong to the newest step, the later spans to the oldest.
///
/// How a step's wall time divides: host spans never nest. Device time is the ops' time, from the first stamp to the stamps' end. A
/// synchronous backend (CPU) runs its ops inside the `launch` span; end_step() subtracts their time from that span. Its wall time is
/// begin_step() to end_step(); spans and ops add up to it, except for the gaps between spans. On an asynchronous backend (CUDA) the wall
/// time ends with the last op. It begins when the device finished the step before, or with begin_step() if that is later. So the wall
/// times of successive steps never overlap, and the device idles in the part that no op covers.
///
/// The engine owns it. Only the engine thread calls it, except for after(), dropped() and
/// capacity(), which any thread may call. Here the engine thread neither allocates nor waits. If a reader
/// holds the ring when a step ends, the step is kept beside the ring, and the next holder of the ring puts it in. If
/// the next step ends before that, the ring loses the older step, and dropped() counts it. The sinks get every step.
class StepRecorder {
 public:
  static constexpr size_t kMostOpenSteps = 3;

  explicit StepRecorder(const RecorderOptions& options);
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  /// Every sink gets every record. The recorder does not own sinks. Call only between steps.
  void add_sink(StepSink& sink) { sinks_.push_back(&sink); }
  void remove_sink(StepSink& sink) { std::erase(sinks_, &sink); }
  /// Turns recording on or off from the next begin_step() on. Steps are numbered in either case.
  void set_enabled(bool enabled) { enabled_ = enabled; }
  /// Forgets all records and drops and numbers the next step 0, e.g. after a warm-up. Waits for readers. Call only while no step is open.
  void reset();

  /// The number that the next begin_step() gives.
  int64_t next_step() const { return next_step_; }
  void begin_step();
  /// The system's id of the thread that began the newest step; 0: no step has begun. Any thread.
  int32_t engine_thread() const { return engine_thread_.load(std::memory_order_relaxed); }
  /// The number of the newest step.
  int64_t newest_step() const { return next_step_ - 1; }
  /// True if the newest step is recorded.
  bool recording() const { return newest().recording; }
  /// True if the step that `span` belongs to is recorded.
  bool recording(HostSpan span) const { return step_of(span).recording; }
  /// The place for the backend's op stamps of the newest step; null if it is not recorded. The pointer is valid until its end_step().
  StepStamps* stamps() { return recording() ? &newest().record.stamps : nullptr; }
  void add_host_ns(HostSpan span, int64_t ns) {
    step_of(span).record.host_ns[static_cast<size_t>(span)] += ns;
  }
  void set_batch(const StepBatch& batch) { newest().record.batch = batch; }
  /// StepRecord::served of the newest step, for the caller to fill.
  std::vector<uint32_t>& served() { return newest().record.served; }
  /// True if a sink takes the ids given to add_request(); the ring does not keep them.
  bool wants_requests() const { return recording() && has_request_sink(); }
  void add_request(std::string_view id) { newest().record.requests.push_back(id); }
  /// True if a sink takes the requests given to end_request(). A step may be open or not.
  bool wants_ended_requests() const {
    return enabled_ &&
           std::ranges::any_of(sinks_, [](const StepSink* sink) { return sink->wants_ended_requests(); });
  }
  void end_request(const EndedRequest& request);
  void add_rank_step(const RankStep& step) {
    for (StepSink* sink : sinks_)
      sink->consume_rank_step(step);
  }
  /// The oldest open step as far as it is known; null if no step is open or it is not recorded.
  const StepRecord* oldest() const {
    return num_open_ > 0 && open_[oldest_].recording ? &open_[oldest_].record : nullptr;
  }
  /// Adds tokens that grammars forced when the oldest step was committed.
  void add_forced_tokens(int32_t count) {
    if (num_open_ > 0) open_[oldest_].record.batch.forced_tokens += count;
  }
  /// Adds the first draft tokens of a sequence, which proved right when the oldest step was committed.
  void add_accepted_tokens(int64_t count) {
    if (num_open_ == 0) return;
    StepBatch& batch = open_[oldest_].record.batch;
    batch.accepted_tokens += static_cast<int32_t>(count);
    for (size_t place = 0; place < std::min(static_cast<size_t>(count), StepBatch::kMostDrafts); ++place)
      ++batch.accepted_at[place];
  }
  /// Sets how the newest step was launched.
  void set_launched(const LaunchedStep& launched);
  /// Ends the oldest step.
  void end_step();
  /// Ends the newest step without a record, because it had nothing to do or failed. The next step gets its number.
  void cancel_step();

  /// Copies of the records of the steps after `step`, in order and without request ids, as far as the ring still holds them.
  std::vector<StepRecord> after(int64_t step) const;
  /// The number of steps that the ring lost because a reader held it.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  /// The number of records that the ring can hold.
  size_t capacity() const { return ring_.size(); }

 private:
  struct OpenStep {
    StepRecord record;
    bool recording = false;
  };

  bool has_request_sink() const {
    return std::ranges::any_of(sinks_, [](const StepSink* sink) { return sink->wants_requests(); });
  }
  OpenStep& newest() { return open_[(oldest_ + num_open_ + kMostOpenSteps - 1) % kMostOpenSteps]; }
  const OpenStep& newest() const { return const_cast<StepRecorder*>(this)->newest(); }
  OpenStep& step_of(HostSpan span) { return span <= HostSpan::launch ? newest() : open_[oldest_]; }
  const OpenStep& step_of(HostSpan span) const { return const_cast<StepRecorder*>(this)->step_of(span); }
  void set_wall_time(StepRecord& record);
  void keep(StepRecord& record);
  void put_into_ring(StepRecord& record) const;
  void put_late_into_ring() const;

  const bool asynchronous_;
  std::vector<StepSink*> sinks_;
  bool enabled_ = true;
  int64_t next_step_ = 0;
  std::array<OpenStep, kMostOpenSteps> open_;  ///< a ring: from oldest_ on, num_open_ of them
  size_t oldest_ = 0;
  size_t num_open_ = 0;
  int64_t device_end_ns_ = 0;  ///< when the last ended step ended on the device
  size_t reserved_ops_;
  mutable std::mutex ring_mutex_;  ///< guards ring_ and kept_; the engine thread only ever tries it
  mutable std::vector<StepRecord> ring_;
  mutable uint64_t kept_ = 0;  ///< records ever kept; the newest is ring_[(kept_ - 1) % ring_.size()]
  /// The step that ended while a reader held the ring. The engine thread writes it; a thread that holds ring_mutex_ takes it.
  mutable LatestValue<StepRecord> late_;
  std::atomic<uint64_t> dropped_{0};
  std::atomic<int32_t> engine_thread_{0};
};

/// Adds the time from its construction to its destruction to a host span of a step in progress. Subtracts it from `around`, if the timer
/// runs inside another timer of the same step.
class SpanTimer {
 public:
  SpanTimer(StepRecorder& recorder, HostSpan span) : SpanTimer(recorder, span, span) {}
  SpanTimer(StepRecorder& recorder, HostSpan span, HostSpan around)
      : recorder_(recorder),
        span_(span),
        around_(around),
        begin_ns_(recorder.recording(span) ? now_ns() : 0) {}
  ~SpanTimer() {
    if (!recorder_.recording(span_)) return;
    const int64_t ns = now_ns() - begin_ns_;
    recorder_.add_host_ns(span_, ns);
    if (around_ != span_) recorder_.add_host_ns(around_, -ns);
  }
  SpanTimer(const SpanTimer&) = delete;
  SpanTimer& operator=(const SpanTimer&) = delete;

 private:
  StepRecorder& recorder_;
  HostSpan span_;
  HostSpan around_;
  int64_t begin_ns_;
};

}  // namespace minfer
