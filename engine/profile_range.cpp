#include "engine/profile_range.h"

#include <exception>
#include <utility>

#include "kernels/base/error.h"

namespace minfer {

ProfileRange::ProfileRange(Backend& backend, StepRecorder& recorder, Ranks* ranks, DeviceTracer* tracer)
    : backend_(backend), recorder_(recorder), ranks_(ranks), own_tracer_(tracer), tracer_(nullptr) {}

ProfileRange::~ProfileRange() {
  if (state_ != State::running) return;
  if (is_tracing_) recorder_.remove_sink(*this);
  if (tracer_ != nullptr) tracer_->stop();
}

void ProfileRange::set(Options options) {
  if (is_set()) fail("a range of steps is being profiled already");
  if (options.last_step < options.first_step)
    fail("profile range: its last step is {}, before its first, {}", options.last_step, options.first_step);
  options_ = std::move(options);
  tracer_ = !options_.traces ? nullptr : own_tracer_ != nullptr ? own_tracer_ : backend_.tracer();
  state_ = State::waiting;
}

void ProfileRange::end_before(int64_t next_step) {
  if (next_step <= options_.last_step) options_.last_step = next_step - 1;
}

void ProfileRange::at_idle(int64_t next_step) {
  if (state_ == State::none) return;
  if (is_over(next_step)) return end_now();
  if (begins(next_step)) begin();
  if (is_full()) end_trace();
}

/// The tracer tells other tools of the range. So it runs to the range's end even where it cannot trace.
void ProfileRange::begin() {
  state_ = State::running;
  if (tracer_ == nullptr) return;
  trace_ = {};
  trace_.first_step = options_.first_step;
  trace_.last_step = options_.last_step;
  trace_.error = tracer_->start(options_.most_records);
  is_tracing_ = trace_.error.empty();
  if (is_tracing_) {
    recorder_.add_sink(*this);
    if (ranks_ != nullptr) ranks_->begin_trace(*tracer_);
  } else if (options_.on_trace) {
    options_.on_trace(std::move(trace_));
  }
}

void ProfileRange::end_trace() {
  is_tracing_ = false;
  recorder_.remove_sink(*this);
  try {
    if (ranks_ != nullptr) trace_.ranks = ranks_->end_trace();
  } catch (const DeviceError&) {  // a rank has failed: what the first one has seen is there all the same
  }
  trace_.records = tracer_->stop();
  tracer_ = nullptr;
  if (const LaunchTable* table = backend_.launches()) trace_.launches = table->from(0);
  if (options_.on_trace) options_.on_trace(std::exchange(trace_, {}));
}

void ProfileRange::end_now() {
  if (state_ == State::none) return;
  if (is_tracing_) end_trace();
  if (state_ == State::running && tracer_ != nullptr) tracer_->stop();
  state_ = State::none;
  const Options ended = std::exchange(options_, {});
  if (ended.on_end) ended.on_end();
}

void ProfileRange::consume(const StepRecord& record) noexcept {
  try {
    trace_.steps.push_back({.step = record.step, .shape = record.batch.shape, .stamps = record.stamps});
  } catch (const std::exception&) {  // no memory: its kernels count as those of no step
  }
}

}  // namespace minfer
