#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "engine/ranks/ranks.h"
#include "kernels/backend.h"
#include "kernels/device_trace.h"
#include "profiling/record/recorder.h"
#include "profiling/trace/range_trace.h"

namespace minfer {

/// The range of steps that an engine traces kernel by kernel (profiler tier 1), if there is one. It begins and
/// ends where no step is under way: the engine asks before it launches a step, and first finishes the steps in
/// front of it if the range wants that. On a backend that cannot trace, a range only says when it is over.
///
/// Owned by the engine; engine thread. Outside a range, it costs one comparison a step. Within a range, it copies the steps' stamps.
class ProfileRange final : private StepSink {
 public:
  /// Enough for some thousand steps, in 64 MB.
  static constexpr int64_t kMostRecords = 1'000'000;

  struct Options {
    int64_t first_step = 0;  ///< first and last are included; passed steps are left out
    int64_t last_step = std::numeric_limits<int64_t>::max();
    bool traces = true;                   ///< kernel by kernel, if the backend can
    int64_t most_records = kMostRecords;  ///< kernels and copies of all ranks; then the tracing ends
    /// Takes the trace, or the reason for none. Called once, unless `traces` is off or the backend cannot trace.
    std::function<void(RangeTrace)> on_trace = nullptr;
    /// Says that the range is over. Called once, after on_trace.
    std::function<void()> on_end = nullptr;
  };

  /// `ranks`: the other ranks, which are traced too; null: there is one rank. `tracer`: replaces the backend's.
  ProfileRange(Backend& backend, StepRecorder& recorder, Ranks* ranks = nullptr,
               DeviceTracer* tracer = nullptr);
  ~ProfileRange() override;
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

  /// Throws Error if a range is set already, or the last step is before the first.
  void set(Options options);
  bool is_set() const { return state_ != State::none; }
  /// Ends the range before `next_step`, at the next at_idle().
  void end_before(int64_t next_step);
  /// Ends the range here: calls back before it returns. The device is idle.
  void end_now();

  /// True if the steps under way have to finish before `next_step` is launched.
  bool wants_idle(int64_t next_step) const {
    return state_ != State::none && (is_over(next_step) || begins(next_step) || is_full());
  }
  /// Call it when no step is under way and `next_step` will be the next.
  void at_idle(int64_t next_step);
  /// Around the launch of a step.
  void begin_launch(int64_t step) {
    if (is_tracing_) tracer_->begin_launch(step, 0);
  }
  void end_launch() {
    if (is_tracing_) tracer_->end_launch(0);
  }

 private:
  enum class State : uint8_t { none, waiting, running };

  bool begins(int64_t next_step) const {
    return state_ == State::waiting && next_step >= options_.first_step;
  }
  bool is_over(int64_t next_step) const { return next_step > options_.last_step; }
  bool is_full() const { return is_tracing_ && tracer_->is_full(); }
  void begin();
  void end_trace();
  void consume(const StepRecord& record) noexcept override;
  bool wants_requests() const noexcept override { return false; }

  Backend& backend_;
  StepRecorder& recorder_;
  Ranks* const ranks_;
  DeviceTracer* const own_tracer_;  ///< null: the backend's
  DeviceTracer* tracer_;            ///< null: the backend has none, or this range does without
  Options options_;
  State state_ = State::none;
  bool is_tracing_ = false;
  RangeTrace trace_;
};

}  // namespace minfer
