#include "profiling/chrome_trace/step_tracks.h"

#include <algorithm>

#include <fmt/format.h>

namespace minfer {
namespace {

void write_step_slice(TraceEvents& events, Track track, const StepSummary& step, OpTimes times) {
  const BatchShape& shape = step.batch.shape;
  JsonText& args = events.add_slice(track, fmt::format("step {}", step.step), "step", span_of(step));
  args.field("step", step.step).field("phase", name(step.phase()));
  if (step.batch.graph_batch > 0) args.field("graph", graph_name(step.batch.phase(), step.batch.graph_batch));
  args.field("prefill requests", shape.prefill_sequences).field("decode requests", shape.decode_sequences);
  args.field("prefill tokens", shape.prefill_tokens).field("decode tokens", shape.decode_tokens);
  if (step.batch.draft_tokens > 0) {
    args.field("draft tokens", step.batch.draft_tokens).field("accepted tokens", step.batch.accepted_tokens);
  }
  args.field("preempted", step.batch.preempted).field("ops us", step.gpu_us);
  args.field("idle us", step.gpu_idle_us).field("times of ops", name(times));
}

/// The op's summary over the step, if there is one.
const OpSummary* summary_of(const StepSummary& step, const PlacedOp& op) {
  for (const OpSummary& summary : step.ops) {
    if (summary.op == op.op && summary.phase == op.phase) return &summary;
  }
  return nullptr;
}

void write_op(TraceEvents& events, Track track, const StepSummary& step, const PlacedOp& op, OpTimes times) {
  JsonText& args = events.add_slice(track, op.op, "op", op.span);
  args.field("step", step.step).field("layer", op.layer).field("phase", name(op.phase));
  args.field("time", name(times));
  if (const OpSummary* summary = summary_of(step, op)) {
    args.field("calls in step", summary->calls).field("us in step", summary->us);
    args.field("bytes in step", summary->bytes).field("GB/s in step", summary->gbps(), 1);
    args.field("roofline % in step", 100.0 * summary->roofline(), 1).field("bound", name(summary->bound));
  }
}

/// Splits the ops that agree in `field` off the front of `rest`.
template <class Field>
std::span<const PlacedOp> take_run(std::span<const PlacedOp>& rest, Field PlacedOp::*field) {
  const auto end =
      std::ranges::find_if(rest, [&](const PlacedOp& op) { return op.*field != rest.front().*field; });
  const auto run = rest.first(static_cast<size_t>(end - rest.begin()));
  rest = rest.subspan(run.size());
  return run;
}

/// A slice around a run of ops.
void write_run(TraceEvents& events, Track track, std::string_view title, std::string_view category,
               std::span<const PlacedOp> run) {
  events.add_slice(track, title, category, {run.front().span.begin_ns, run.back().span.end_ns})
      .field("ops", static_cast<int64_t>(run.size()));
}

}  // namespace

void write_ops(TraceEvents& events, Tracks& tracks, const StepSummary& step, const OpTimeline& timeline) {
  const Track track = tracks.ops();
  write_step_slice(events, track, step, timeline.times);
  for (std::span<const PlacedOp> ops = timeline.ops; !ops.empty();) {
    auto of_phase = take_run(ops, &PlacedOp::phase);
    write_run(events, track, name(of_phase.front().phase), "phase", of_phase);
    while (!of_phase.empty()) {
      const auto of_layer = take_run(of_phase, &PlacedOp::layer);
      if (of_layer.front().layer >= 0)
        write_run(events, track, fmt::format("layer {}", of_layer.front().layer), "layer", of_layer);
      for (const PlacedOp& op : of_layer)
        write_op(events, track, step, op, timeline.times);
    }
  }
}

void write_requests(TraceEvents& events, Tracks& tracks, const StepSummary& step, std::string_view only) {
  // Decoding sequences come first: see ScheduledBatch.
  const auto num_decode = static_cast<size_t>(step.batch.shape.decode_sequences);
  for (size_t i = 0; i < step.requests.size(); ++i) {
    const std::string& id = step.requests[i];
    if (!only.empty() && id != only) continue;
    events
        .add_slice(tracks.request(id), name(i < num_decode ? StepPhase::decode : StepPhase::prefill),
                   "request", span_of(step))
        .field("step", step.step)
        .field("requests in step", static_cast<int64_t>(step.requests.size()));
  }
}

void write_counters(TraceEvents& events, Tracks& tracks, const StepSummary& step) {
  const int32_t process = tracks.counters();
  const int64_t begin_ns = span_of(step).begin_ns;
  const StepBatch& batch = step.batch;
  events.add_counter(process, "batch tokens", begin_ns)
      .field("prefill", batch.shape.prefill_tokens)
      .field("decode", batch.shape.decode_tokens)
      .field("padded", batch.padded_tokens);
  events.add_counter(process, "requests", begin_ns)
      .field("running", int64_t{batch.shape.prefill_sequences} + batch.shape.decode_sequences)
      .field("waiting", batch.waiting);
  events.add_counter(process, "KV blocks used", begin_ns).field("blocks", batch.kv_blocks_used);
  double bytes = 0.0;
  for (const OpSummary& op : step.ops)
    bytes += static_cast<double>(op.bytes);
  events.add_counter(process, "GB/s counted", begin_ns)
      .field("GB/s", step.gpu_us > 0.0 ? bytes / step.gpu_us * 1e-3 : 0.0, 1);
}

void write_host(TraceEvents& events, Tracks& tracks, const HostSample& sample) {
  if (sample.wall_us() <= 0.0) return;
  const auto percent = [&](double us) { return 100.0 * us / sample.wall_us(); };
  events.add_counter(tracks.counters(), "% of time without a core", sample.begin_ns)
      .field("some thread waits", percent(sample.any_waited_us), 1)
      .field("stolen", percent(sample.stolen_us), 1);
}

void write_device(TraceEvents& events, Tracks& tracks, const DeviceSample& sample) {
  const auto open = [&](std::string_view what) -> JsonText& {
    return events.add_counter(tracks.counters(), fmt::format("GPU {} {}", sample.device, what),
                              sample.begin_ns);
  };
  open("MHz").field("SM", sample.sm_mhz).field("memory", sample.memory_mhz);
  open("W and C").field("power", sample.power_w, 1).field("temperature", sample.temperature_c);
}

void write_measured(TraceEvents& events, int32_t process, const MeasuredCurves& of, const CounterStep& step,
                    int64_t begin_ns) {
  const double us = step.us * step.covered;  // that there are samples of
  if (us <= 0.0) return;
  JsonText& args = events.add_counter(process, of.title, begin_ns);
  for (const auto& [name, counter] : of.curves) {
    if (step.measured.has(counter)) args.field(name, step.measured[counter] / us * 1e-3, 1);
  }
}

}  // namespace minfer
