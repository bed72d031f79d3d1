#include "profiling/json/step_lines.h"

#include <array>
#include <optional>

#include <fmt/format.h>

namespace minfer {
namespace {

StepPhase phase_of(const JsonField& field) {
  return one_of(field, std::array{StepPhase::prefill, StepPhase::decode, StepPhase::mixed});
}

StepBatch batch_of(const JsonField& field, const JsonField& kv) {
  StepBatch batch;
  batch.shape.prefill_sequences = field["prefill_requests"].small();
  batch.shape.decode_sequences = field["decode_requests"].small();
  batch.shape.prefill_tokens = field["prefill_tokens"].small();
  batch.shape.decode_tokens = field["decode_tokens"].small();
  batch.padded_tokens = field["padded_tokens"].small();
  batch.prefix_hit_tokens = field["prefix_hit_tokens"].small();
  batch.preempted = field["preempted"].small();
  batch.waiting = field["waiting"].small();
  if (const auto longest = field.find("longest_context")) {
    batch.shape.longest_context = longest->small(1);
    batch.shape.decode_context = field["decode_context"].count();
    if (batch.shape.decode_context < batch.shape.longest_context)
      longest->expected(fmt::format("at most decode_context, {}", batch.shape.decode_context));
  }
  if (const auto rows = field.find("constrained_rows")) batch.constrained_rows = rows->small();
  if (const auto tokens = field.find("forced_tokens")) batch.forced_tokens = tokens->small();
  if (const auto tokens = field.find("prefill_budget")) batch.prefill_budget = tokens->small();
  if (const auto speculation = field.find("speculation")) {
    batch.drafts = (*speculation)["drafts"].small(1);
    batch.draft_tokens = (*speculation)["draft_tokens"].small(1);
    batch.accepted_tokens = (*speculation)["accepted_tokens"].small();
  }
  batch.kv_blocks_used = kv["blocks_used"].small();
  batch.kv_blocks_total = kv["blocks_total"].small();
  return batch;
}

int32_t graph_batch_of(const JsonField& field) {
  const int32_t sequences = sequences_of_graph(field.text());
  if (sequences == 0) field.expected("decode_bN or prefill_bN");
  return sequences;
}

void set_attributed_by(StepSummary& step, const JsonField& field) {
  step.on_device = field.raw_text() != "host clocks";
  step.idle_source = IdleSource::none;
  if (!step.on_device) return;
  step.idle_source =
      one_of(field, std::array{IdleSource::none, IdleSource::launch_times, IdleSource::end_stamps});
}

PhaseTime phase_time_of(const std::optional<JsonField>& field) {
  if (!field) return {};
  return {(*field)["us"].number(), (*field)["tokens"].small()};
}

/// Texts of ops are the same in line after line: one that has not changed is not made again.
void set_text(std::string& text, const JsonField& field) {
  if (text != field.raw_text()) text = field.text();
}

// `num_launches`: of which lines came before.
void read_op(const JsonField& field, int32_t num_launches, OpSummary& op) {
  set_text(op.op, field["op"]);
  op.phase = phase_of(field["phase"]);
  op.calls = field["calls"].small();
  op.us = field["us"].number();
  op.bytes = field["bytes"].work();
  op.flops = field["flops"].work();
  const auto experts = field.find("experts_read");
  op.experts_read = experts ? experts->count() : -1;
  const auto link = field.find("link_bytes");
  op.link_bytes = link ? link->work() : 0;
  op.waited_us = link ? field["waited_us"].number() : 0.0;
  op.floor_us = field["roofline"].number() * op.us;
  op.bound = one_of(field["bound"], std::array{Bound::unknown, Bound::memory, Bound::compute});
  op.idle_us = field["idle_us"].number();
  const JsonField launches = field["launches"];
  op.launches.resize(launches.size());
  for (size_t i = 0; i < op.launches.size(); ++i) {
    const JsonField launch = launches[i];
    op.launches[i] = launch.small();
    if (op.launches[i] >= num_launches) launch.expected(fmt::format("a launch below {}", num_launches));
  }
}

void read_layer_op(const JsonField& field, LayerOp& op) {
  op.layer = field["layer"].small(-1);
  set_text(op.op, field["op"]);
  op.phase = phase_of(field["phase"]);
  op.us = field["us"].number();
}

}  // namespace

void read_step(const JsonField& field, int32_t num_launches, StepSummary& step) {
  step.step = field["step"].count();
  step.start_ns = field["start_ns"].time_ns();
  step.wall_us = field["wall_us"].number();
  step.gpu_us = field["gpu_us"].number();
  step.gpu_idle_us = field["gpu_idle_us"].number();
  const JsonField idle = field["idle"];
  step.idle_host_us = idle["host_us"].number();
  step.idle_device_us = idle["device_us"].number();
  step.late_ops = idle["late_ops"].small();
  const JsonField phase = field["phase"];
  const auto graph = field.find("graph");
  step.batch = batch_of(field["batch"], field["kv"]);
  if (graph) step.batch.graph_batch = graph_batch_of(*graph);
  if (const auto predicted = field.find("predicted_us")) step.batch.predicted_ns = predicted->duration_ns();
  if (phase_of(phase) != step.phase()) phase.expected(name(step.phase()));
  const JsonField host = field["host_us"];
  for (size_t i = 0; i < kHostSpans; ++i) {
    const auto span = static_cast<HostSpan>(i);
    const auto found = is_optional(span) ? host.find(name(span)) : std::nullopt;
    step.host_us[i] = !is_optional(span) ? host[name(span)].number() : found ? found->number() : 0.0;
  }
  const JsonField phases = field["phases"];
  step.prefill = phase_time_of(phases.find("prefill"));
  step.decode = phase_time_of(phases.find("decode"));
  const JsonField ops = field["ops"];
  step.ops.resize(ops.size());
  for (size_t i = 0; i < step.ops.size(); ++i)
    read_op(ops[i], num_launches, step.ops[i]);
  const auto layers = field.find("layers");
  step.layers.resize(layers ? layers->size() : 0);
  for (size_t i = 0; i < step.layers.size(); ++i)
    read_layer_op((*layers)[i], step.layers[i]);
  step.attributed = field["attributed"].number();
  set_attributed_by(step, field["attributed_by"]);
  step.dropped = static_cast<uint64_t>(field["dropped"].count());
  const JsonField requests = field["requests"];
  step.requests.resize(requests.size());
  for (size_t i = 0; i < step.requests.size(); ++i)
    set_text(step.requests[i], requests[i]);
}

}  // namespace minfer
