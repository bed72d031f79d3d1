#include <cmath>

#include "profiling/json/line_members.h"

namespace minfer {
namespace {

constexpr auto kCounterName = [](const JsonField& field) { return one_of(field, kAllCounters); };

}  // namespace

/// The known values. Bytes have a decimal, since they are means.
template <class Json>
void members(Json& json, Is<CounterValues> auto& values) {
  for (const Counter counter : kAllCounters) {
    if (json.has(name(counter), values.has(counter)))
      json.member(name(counter), values[counter], kNumber, counts_bytes(counter) ? 1 : 5);
  }
}

template <class Json>
void members(Json& json, Is<CounterStep> auto& step) {
  json.member("step", step.step).member("us", step.us).member("covered", step.covered, kNumber, 5);
  members(json, step.measured);
  json.member("counted_read_bytes", step.counted_read_bytes, kBytes);
  json.member("counted_written_bytes", step.counted_written_bytes, kBytes);
}

template <class Json>
void members(Json& json, Is<CounterOp> auto& op) {
  json.member("op", op.op).member("phase", op.phase, kStepPhase).member("calls", op.calls);
  json.optional("samples", op.samples, kCount, -1).member("us", op.us);
  members(json, op.measured);
  if (json.has("read_error_bytes", std::isfinite(op.read_error_bytes)))
    json.member("read_error_bytes", op.read_error_bytes, kNumber, 1);
  json.member("counted_read_bytes", op.counted_read_bytes, kNumber, 1);
  if (std::isfinite(op.read_gbps())) json.told("read_gbps", op.read_gbps());
}

template <class Json>
void members(Json& json, Is<CounterWork> auto& work) {
  json.member("phase", work.phase, kStepPhase);
  graph_member(json, work.phase, work.graph_batch);
  json.member("steps", work.steps).member("replays", work.replays).list("ops", work.ops);
}

/// A counter that was left out, and the reason.
template <class Json>
void members(Json& json, Is<std::pair<Counter, std::string>> auto& left_out) {
  json.member("counter", left_out.first, kCounterName).member("reason", left_out.second);
}

template <class Json>
void members(Json& json, Is<CounterWindow> auto& window) {
  json.told("schema", kCountersSchema).optional("rank", window.rank).optional("error", window.error);
  if (json.has("error", !window.error.empty())) return;
  json.member("begin_ns", window.begin_ns, kTime).member("us", window.us);
  json.member("interval_ns", window.interval_ns, kTime);
  json.member("clock", window.clock, one_name_of(SampleClock::device, SampleClock::fitted));
  json.member("clock_shift_ns", window.clock_shift_ns, kTimeFrom<-4'000'000'000'000'000'000>);
  json.member("samples", window.samples).member("lost", window.lost);
  json.plain_list("counters", window.counters, kCounterName).list("left_out", window.left_out);
  json.object("cost", [&](auto& inner) {
    inner.member("start_ms", window.start_ms).member("stop_ms", window.stop_ms);
    inner.member("drain_ms", window.drain_ms).member("attribution_ms", window.attribution_ms);
  });
  json.list("steps", window.steps).list("work", window.work);
}

template struct JsonOf<CounterWindow>;

}  // namespace minfer
