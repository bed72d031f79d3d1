#include "profiling/json/counters_json.h"

#include <algorithm>
#include <cmath>

#include "profiling/json/json_text.h"

namespace minfer {
namespace {

constexpr std::array kCounterPhases{StepPhase::prefill, StepPhase::decode, StepPhase::mixed};

/// Those that are known. Bytes have a decimal: they are means.
void append_values(JsonText& json, const CounterValues& values) {
  for (const Counter counter : kAllCounters) {
    if (values.has(counter)) json.field(name(counter), values[counter], counts_bytes(counter) ? 1 : 5);
  }
}

void append_setup(JsonText& json, const CounterWindow& window) {
  json.field("begin_ns", window.begin_ns).field("us", window.us).field("interval_ns", window.interval_ns);
  json.field("clock", name(window.clock)).field("clock_shift_ns", window.clock_shift_ns);
  json.field("samples", window.samples).field("lost", window.lost).key("counters").open('[');
  for (const Counter counter : window.counters)
    json.value(name(counter));
  json.close(']').key("left_out").open('[');
  for (const auto& [counter, reason] : window.left_out)
    json.open('{').field("counter", name(counter)).field("reason", std::string_view(reason)).close('}');
  json.close(']').key("cost").open('{');
  json.field("start_ms", window.start_ms).field("stop_ms", window.stop_ms);
  json.field("drain_ms", window.drain_ms).field("attribution_ms", window.attribution_ms).close('}');
}

void append_op(JsonText& json, const CounterOp& op) {
  json.open('{').field("op", std::string_view(op.op)).field("phase", name(op.phase));
  json.field("calls", op.calls);
  if (op.samples >= 0) json.field("samples", op.samples);
  json.field("us", op.us);
  append_values(json, op.measured);
  if (std::isfinite(op.read_error_bytes)) json.field("read_error_bytes", op.read_error_bytes, 1);
  json.field("counted_read_bytes", op.counted_read_bytes, 1);
  if (std::isfinite(op.read_gbps())) json.field("read_gbps", op.read_gbps(), 3);
  json.close('}');
}

void append_work(JsonText& json, const CounterWork& work) {
  json.open('{').field("phase", name(work.phase));
  if (work.graph_batch > 0) json.field("graph", graph_name(work.phase, work.graph_batch));
  json.field("steps", work.steps).field("replays", work.replays).key("ops").open('[');
  for (const CounterOp& op : work.ops)
    append_op(json, op);
  json.close(']').close('}');
}

/// The one of `values` that has the field's name.
template <class Values>
auto named(const JsonField& field, const Values& values) {
  const std::string text = field.text();
  const auto found = std::ranges::find_if(values, [&](auto value) { return text == name(value); });
  if (found == std::end(values)) field.expected("a name of this schema");
  return *found;
}

CounterValues values_of(const JsonField& field) {
  CounterValues values;
  for (const Counter counter : kAllCounters) {
    if (const auto value = field.find(name(counter))) values[counter] = value->number();
  }
  return values;
}

CounterOp counter_op_of(const JsonField& field) {
  CounterOp op;
  op.op = field["op"].text();
  op.phase = named(field["phase"], kCounterPhases);
  op.calls = field["calls"].small();
  op.samples = -1;
  if (const auto samples = field.find("samples")) op.samples = samples->count();
  op.us = field["us"].number();
  op.measured = values_of(field);
  if (const auto error = field.find("read_error_bytes")) op.read_error_bytes = error->number();
  op.counted_read_bytes = field["counted_read_bytes"].number();
  return op;
}

CounterWork work_of(const JsonField& field) {
  CounterWork work;
  work.phase = named(field["phase"], kCounterPhases);
  if (const auto graph = field.find("graph")) {
    work.graph_batch = sequences_of_graph(graph->text());
    if (work.graph_batch == 0) graph->expected("decode_bN or prefill_bN");
  }
  work.steps = field["steps"].count();
  work.replays = field["replays"].count();
  const JsonField ops = field["ops"];
  for (size_t i = 0; i < ops.size(); ++i)
    work.ops.push_back(counter_op_of(ops[i]));
  return work;
}

CounterStep counter_step_of(const JsonField& field) {
  CounterStep step;
  step.step = field["step"].count();
  step.us = field["us"].number();
  step.covered = field["covered"].number();
  step.measured = values_of(field);
  step.counted_read_bytes = field["counted_read_bytes"].bytes();
  step.counted_written_bytes = field["counted_written_bytes"].bytes();
  return step;
}

}  // namespace

void append_counters_line(std::string& out, const CounterWindow& window) {
  JsonText json(out);
  json.open('{').field("schema", kCountersSchema);
  if (window.rank > 0) json.field("rank", window.rank);
  if (!window.error.empty()) {
    json.field("error", std::string_view(window.error)).close('}');
    out += '\n';
    return;
  }
  append_setup(json, window);
  json.key("steps").open('[');
  for (const CounterStep& step : window.steps) {
    json.open('{').field("step", step.step).field("us", step.us).field("covered", step.covered, 5);
    append_values(json, step.measured);
    json.field("counted_read_bytes", step.counted_read_bytes);
    json.field("counted_written_bytes", step.counted_written_bytes).close('}');
  }
  json.close(']').key("work").open('[');
  for (const CounterWork& work : window.work)
    append_work(json, work);
  json.close(']').close('}');
  out += '\n';
}

CounterWindow read_counters(const JsonField& line) {
  CounterWindow window;
  if (const auto rank = line.find("rank")) window.rank = rank->small();
  if (const auto error = line.find("error")) {
    window.error = error->text();
    return window;
  }
  window.begin_ns = line["begin_ns"].time_ns();
  window.us = line["us"].number();
  window.interval_ns = line["interval_ns"].time_ns();
  window.clock = named(line["clock"], std::array{SampleClock::device, SampleClock::fitted});
  window.clock_shift_ns = line["clock_shift_ns"].time_ns(-int64_t{4'000'000'000'000'000'000});
  window.samples = line["samples"].count();
  window.lost = line["lost"].count();
  const JsonField counters = line["counters"];
  for (size_t i = 0; i < counters.size(); ++i)
    window.counters.push_back(named(counters[i], kAllCounters));
  const JsonField left_out = line["left_out"];
  for (size_t i = 0; i < left_out.size(); ++i) {
    const JsonField each = left_out[i];
    window.left_out.emplace_back(named(each["counter"], kAllCounters), each["reason"].text());
  }
  const JsonField cost = line["cost"];
  window.start_ms = cost["start_ms"].number();
  window.stop_ms = cost["stop_ms"].number();
  window.drain_ms = cost["drain_ms"].number();
  window.attribution_ms = cost["attribution_ms"].number();
  const JsonField steps = line["steps"];
  for (size_t i = 0; i < steps.size(); ++i)
    window.steps.push_back(counter_step_of(steps[i]));
  const JsonField work = line["work"];
  for (size_t i = 0; i < work.size(); ++i)
    window.work.push_back(work_of(work[i]));
  return window;
}

}  // namespace minfer
