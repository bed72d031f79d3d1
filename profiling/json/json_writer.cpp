#include "profiling/json/json_writer.h"

#include <array>

#include <fmt/format.h>

#include "profiling/json/json_text.h"

namespace minfer {
namespace {

constexpr std::string_view kOnDevice = "device", kPinned = "page-locked";

void append_ceilings(JsonText& json, const Ceilings& ceilings) {
  json.key("ceilings").open('{');
  json.field("read_gbps", ceilings.read_gbps, 3).field("gflops", ceilings.gflops, 3);
  if (ceilings.tries() > 0)
    json.field("runs", ceilings.runs).field("measured_unix_s", ceilings.measured_unix_s);
  if (ceilings.disturbed_runs > 0) json.field("disturbed_runs", ceilings.disturbed_runs);
  for (const auto& [name, unit] : kUnitCeilings) {
    if (ceilings.*unit > 0.0) json.field(name, ceilings.*unit, 3);
  }
  json.close('}');
}

void write_memory(JsonText& json, const MemoryUse& memory) {
  json.open('{').field("total_bytes", memory.total_bytes).field("used_bytes", memory.used_bytes);
  json.field("used_before_bytes", memory.used_before_bytes).key("parts").open('[');
  for (const MemoryPart& part : memory.parts) {
    json.open('{').field("what", std::string_view(part.what)).field("bytes", part.bytes);
    json.field("most_bytes", part.most_bytes).field("place", part.on_device ? kOnDevice : kPinned).close('}');
  }
  json.close(']').close('}');
}

void append_options(JsonText& json, const ProfileHeader& header) {
  json.key("options").open('{');
  for (const auto& [option, content] : header.options)
    json.field(option, std::string_view(content));
  json.close('}');
}

void append_clocks(JsonText& json, const ProfileHeader& header) {
  json.key("clocks").open('{').field("host", std::string_view("monotonic"));
  json.field("clock_ns", header.clock_ns).field("unix_ns", header.unix_ns).close('}');
}

void append_op_table(JsonText& json, const ProfileHeader& header) {
  json.key("ops").open('[');
  for (const OpInfo& op : header.ops) {
    json.open('{').field("op", std::string_view(op.name)).field("layer", op.layer);
    json.field("kind", name(op.kind)).field("scope", name(op.scope));
    json.field("in_features", op.in_features).field("out_features", op.out_features);
    json.field("weight_bytes", op.weight_bytes);
    if (op.file_bytes > 0)
      json.field("file_bytes", op.file_bytes).field("converted", std::string_view(op.converted));
    if (op.fp8_products) json.field("fp8_products", true);
    json.close('}');
  }
  json.close(']');
}

void append_batch(JsonText& json, const StepBatch& batch) {
  const BatchShape& shape = batch.shape;
  json.key("batch").open('{');
  json.field("requests", shape.decode_sequences + shape.prefill_sequences);
  json.field("prefill_requests", shape.prefill_sequences).field("decode_requests", shape.decode_sequences);
  json.field("prefill_tokens", shape.prefill_tokens).field("decode_tokens", shape.decode_tokens);
  if (shape.longest_context > 0)
    json.field("decode_context", shape.decode_context).field("longest_context", shape.longest_context);
  json.field("padded_tokens", batch.padded_tokens).field("prefix_hit_tokens", batch.prefix_hit_tokens);
  json.field("preempted", batch.preempted).field("waiting", batch.waiting);
  if (batch.constrained_rows > 0) json.field("constrained_rows", batch.constrained_rows);
  if (batch.forced_tokens > 0) json.field("forced_tokens", batch.forced_tokens);
  if (batch.prefill_budget > 0) json.field("prefill_budget", batch.prefill_budget);
  if (batch.drafts > 0) {
    json.key("speculation").open('{').field("drafts", batch.drafts);
    json.field("draft_tokens", batch.draft_tokens).field("accepted_tokens", batch.accepted_tokens).close('}');
  }
  json.close('}');
  json.key("kv")
      .open('{')
      .field("blocks_used", batch.kv_blocks_used)
      .field("blocks_total", batch.kv_blocks_total);
  json.close('}');
}

void append_phase_time(JsonText& json, std::string_view phase, const PhaseTime& time) {
  if (time.tokens == 0) return;
  json.key(phase).open('{').field("us", time.us).field("tokens", time.tokens).close('}');
}

void append_ops(JsonText& json, const StepSummary& step) {
  json.key("ops").open('[');
  for (const OpSummary& op : step.ops) {
    json.open('{')
        .field("op", std::string_view(op.op))
        .field("phase", name(op.phase))
        .field("calls", op.calls);
    json.field("us", op.us).field("bytes", op.bytes).field("flops", op.flops);
    if (op.experts_read >= 0) json.field("experts_read", op.experts_read);
    if (op.link_bytes > 0) json.field("link_bytes", op.link_bytes).field("waited_us", op.waited_us);
    json.field("gbps", op.gbps(), 3).field("tflops", op.tflops(), 6).field("roofline", op.roofline(), 5);
    json.field("bound", name(op.bound)).field("idle_us", op.idle_us).key("launches").open('[');
    for (const int32_t launch : op.launches)
      json.value(launch);
    json.close(']').close('}');
  }
  json.close(']');
}

void append_idle(JsonText& json, const StepSummary& step) {
  json.key("idle").open('{').field("host_us", step.idle_host_us).field("device_us", step.idle_device_us);
  json.field("late_ops", step.late_ops).close('}');
}

void append_sizes(JsonText& json, std::string_view key, const std::array<int32_t, 3>& sizes) {
  json.key(key).open('[');
  for (const int32_t size : sizes)
    json.value(size);
  json.close(']');
}

void append_layers(JsonText& json, const StepSummary& step) {
  json.key("layers").open('[');
  for (const LayerOp& op : step.layers) {
    json.open('{')
        .field("layer", op.layer)
        .field("op", std::string_view(op.op))
        .field("phase", name(op.phase));
    json.field("us", op.us).close('}');
  }
  json.close(']');
}

}  // namespace

void write_header(JsonText& json, const ProfileHeader& header) {
  json.open('{').field("version", std::string_view(header.version));
  json.field("model", std::string_view(header.model));
  json.field("backend", std::string_view(header.backend)).field("device", std::string_view(header.device));
  json.field("threads", header.threads);
  if (header.cores > 0) json.field("cores", header.cores);
  json.field("activation_dtype", name(header.activation_dtype));
  const std::vector<int32_t> tiers = header.asked.numbers();
  json.field("tier", tiers.back()).key("tiers").open('[');
  for (const int32_t tier : tiers)
    json.value(tier);
  json.close(']').field("detail", name(header.detail));
  append_ceilings(json, header.ceilings);
  if (header.cache_bytes > 0) json.field("cache_bytes", header.cache_bytes);
  if (header.memory.total_bytes > 0) write_memory(json.key("memory"), header.memory);
  append_options(json, header);
  append_clocks(json, header);
  json.field("phase_rule", kPhaseRule);
  append_op_table(json, header);
  json.close('}');
}

void write_step(JsonText& json, const StepSummary& step) {
  json.open('{').field("schema", kStepSchema).field("step", step.step).field("start_ns", step.start_ns);
  json.field("wall_us", step.wall_us).field("gpu_us", step.gpu_us).field("gpu_idle_us", step.gpu_idle_us);
  append_idle(json, step);
  if (step.batch.predicted_ns > 0) json.field("predicted_us", us_of(step.batch.predicted_ns));
  json.field("phase", name(step.phase()));
  if (step.batch.graph_batch > 0) json.field("graph", graph_name(step.batch.phase(), step.batch.graph_batch));
  append_batch(json, step.batch);
  json.key("host_us").open('{');
  for (size_t i = 0; i < kHostSpans; ++i) {
    const auto span = static_cast<HostSpan>(i);
    if (!is_optional(span) || step.host_us[i] > 0.0) json.field(name(span), step.host_us[i]);
  }
  json.close('}').key("phases").open('{');
  append_phase_time(json, "prefill", step.prefill);
  append_phase_time(json, "decode", step.decode);
  json.close('}');
  append_ops(json, step);
  if (!step.layers.empty()) append_layers(json, step);
  json.field("attributed", step.attributed, 5)
      .field("attributed_by", step.attributed_by())
      .field("dropped", step.dropped)
      .key("requests")
      .open('[');
  for (const std::string& id : step.requests)
    json.value(std::string_view(id));
  json.close(']').close('}');
}

void append_header_line(std::string& out, const ProfileHeader& header) {
  JsonText json(out);
  json.open('{').field("schema", kStepSchema).key("header");
  write_header(json, header);
  json.close('}');
  out += '\n';
}

void write_launch(JsonText& json, int32_t index, const KernelLaunch& launch) {
  json.open('{').field("schema", kLaunchSchema).field("launch", index);
  json.field("kernel", std::string_view(launch.kernel)).field("path", std::string_view(launch.path));
  append_sizes(json, "grid", launch.grid);
  append_sizes(json, "block", launch.block);
  append_sizes(json, "cluster", launch.cluster);
  json.field("registers", launch.registers).field("static_shared_bytes", launch.static_shared_bytes);
  json.field("dynamic_shared_bytes", launch.dynamic_shared_bytes)
      .field("blocks_per_sm", launch.blocks_per_sm);
  json.field("limiter", name(launch.limiter)).field("occupancy", launch.occupancy, 5);
  json.field("waves", launch.waves, 5);
  if (launch.reads_ahead_bytes > 0) json.field("reads_ahead_bytes", launch.reads_ahead_bytes);
  json.close('}');
}

void append_launch_line(std::string& out, int32_t index, const KernelLaunch& launch) {
  JsonText json(out);
  write_launch(json, index, launch);
  out += '\n';
}

void append_memory_line(std::string& out, const MemoryUse& memory, int64_t clock_ns) {
  JsonText json(out);
  json.open('{').field("schema", kMemorySchema).field("when", std::string_view("end"));
  json.field("clock_ns", clock_ns);
  write_memory(json.key("memory"), memory);
  json.close('}');
  out += '\n';
}

void append_step_line(std::string& out, const StepSummary& step) {
  JsonText json(out);
  write_step(json, step);
  out += '\n';
}

}  // namespace minfer
