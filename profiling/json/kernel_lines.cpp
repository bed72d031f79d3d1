#include "profiling/json/kernel_lines.h"

#include <algorithm>
#include <array>

#include "profiling/json/json_text.h"

namespace minfer {
namespace {

constexpr std::string_view kHostClock = "host", kLibraryClock = "library";
constexpr std::array kShownCauses{GapCause::start, GapCause::host, GapCause::device};

void append_attribution(JsonText& json, const Attribution& attribution) {
  json.key("attribution").open('{').field("steps", attribution.steps).field("step_us", attribution.step_us);
  json.field("difference", attribution.difference(), 5);
  json.field("own_difference", attribution.own_difference(), 5).key("ops").open('[');
  for (const OpDifference& op : attribution.ops) {
    json.open('{').field("op", std::string_view(op.op)).field("runs", op.runs);
    json.field("stamped_us", op.stamped_us).field("kernel_us", op.kernel_us).field("own_us", op.own_us);
    json.field("difference_us", op.difference_us).field("own_difference_us", op.own_difference_us).close('}');
  }
  json.close(']').close('}');
}

Attribution attribution_of(const JsonField& field) {
  Attribution attribution;
  attribution.steps = field["steps"].count();
  attribution.step_us = field["step_us"].number();
  const JsonField ops = field["ops"];
  for (size_t i = 0; i < ops.size(); ++i) {
    const JsonField op = ops[i];
    attribution.ops.push_back({.op = op["op"].text(),
                               .runs = op["runs"].count(),
                               .stamped_us = op["stamped_us"].number(),
                               .kernel_us = op["kernel_us"].number(),
                               .own_us = op["own_us"].number(),
                               .difference_us = op["difference_us"].number(),
                               .own_difference_us = op["own_difference_us"].number()});
  }
  return attribution;
}

void append_gaps(JsonText& json, std::string_view cause, const GapSum& sum) {
  if (sum.gaps == 0) return;
  json.key(cause).open('{').field("gaps", sum.gaps).field("us", sum.us).close('}');
}

/// Causes without a gap are left out.
void append_idle(JsonText& json, const RangeIdle& idle) {
  json.key("idle").open('{');
  append_gaps(json, "start", idle.start);
  append_gaps(json, "host", idle.host);
  append_gaps(json, "device", idle.device);
  append_gaps(json, "unknown", idle.unknown);
  json.key("ops").open('[');
  for (const OpGaps& op : idle.ops) {
    json.open('{').field("op", std::string_view(op.op));
    append_gaps(json, "host", op.host);
    append_gaps(json, "device", op.device);
    append_gaps(json, "unknown", op.unknown);
    json.close('}');
  }
  json.close(']').close('}');
}

void append_strangers(JsonText& json, const std::vector<Stranger>& strangers) {
  json.key("strangers").open('[');
  for (const Stranger& stranger : strangers) {
    json.open('{').field("kernel", std::string_view(stranger.kernel));
    json.field("unmatched", stranger.unmatched).field("outside", stranger.outside).close('}');
  }
  json.close(']');
}

GapSum gaps_of(const JsonField& field, std::string_view cause) {
  const auto sum = field.find(cause);
  if (!sum) return {};
  return {.gaps = (*sum)["gaps"].count(), .us = (*sum)["us"].number()};
}

RangeIdle idle_of(const JsonField& field) {
  RangeIdle idle{.start = gaps_of(field, "start"),
                 .host = gaps_of(field, "host"),
                 .device = gaps_of(field, "device"),
                 .unknown = gaps_of(field, "unknown"),
                 .ops = {}};
  const JsonField ops = field["ops"];
  for (size_t i = 0; i < ops.size(); ++i) {
    const JsonField op = ops[i];
    idle.ops.push_back({.op = op["op"].text(),
                        .host = gaps_of(op, "host"),
                        .device = gaps_of(op, "device"),
                        .unknown = gaps_of(op, "unknown")});
  }
  return idle;
}

std::vector<Stranger> strangers_of(const JsonField& field) {
  std::vector<Stranger> strangers;
  for (size_t i = 0; i < field.size(); ++i) {
    const JsonField stranger = field[i];
    strangers.push_back({.kernel = stranger["kernel"].text(),
                         .unmatched = stranger["unmatched"].count(),
                         .outside = stranger["outside"].count()});
  }
  return strangers;
}

/// Of the first rank nothing is said.
void append_rank(JsonText& json, int32_t rank) {
  if (rank > 0) json.field("rank", rank);
}

int32_t rank_of(const JsonField& field) {
  const auto rank = field.find("rank");
  return rank ? rank->small() : 0;
}

}  // namespace

void append_kernel_line(std::string& out, const KernelLine& kernel) {
  JsonText json(out);
  json.open('{').field("schema", kKernelSchema).field("step", kernel.step);
  append_rank(json, kernel.rank);
  json.field("kind", name(kernel.kind));
  if (kernel.phase) {
    json.field("op", std::string_view(kernel.op)).field("layer", kernel.layer);
    json.field("phase", name(*kernel.phase));
  }
  if (kernel.kind == ActivityKind::kernel) json.field("kernel", std::string_view(kernel.kernel));
  if (kernel.launch >= 0) json.field("launch", kernel.launch);
  json.field("stream", kernel.stream).field("graph", kernel.in_graph);
  json.field("start_ns", kernel.start_ns).field("us", kernel.us).field("own_us", kernel.own_us);
  json.field("gap_us", kernel.gap_us);
  if (std::ranges::find(kShownCauses, kernel.gap_cause) != kShownCauses.end())
    json.field("gap_cause", name(kernel.gap_cause));
  if (kernel.launch_delay_us >= 0.0) json.field("launch_delay_us", kernel.launch_delay_us);
  if (kernel.kind != ActivityKind::kernel) json.field("bytes", kernel.bytes);
  json.close('}');
  out += '\n';
}

void append_range_line(std::string& out, const RangeLine& range) {
  JsonText json(out);
  json.open('{').field("schema", kKernelSchema).key("range").open('{');
  append_rank(json, range.rank);
  json.field("first_step", range.first_step).field("last_step", range.last_step);
  if (!range.error.empty()) json.field("error", std::string_view(range.error));
  json.field("steps", range.steps).field("kernels", range.kernels).field("copies", range.copies);
  json.field("dropped", range.dropped).field("invalid", range.invalid).field("outside", range.outside);
  json.field("unmatched", range.unmatched).field("missing", range.missing);
  json.field("of_profiler", range.of_profiler);
  append_strangers(json, range.strangers);
  json.field("overhead_us", range.overhead_us);
  json.field("clock", range.own_clock ? kLibraryClock : kHostClock);
  json.field("busy_us", range.busy_us).field("idle_us", range.idle_us);
  json.field("host_wait_us", range.host_wait_us);
  append_idle(json, range.idle);
  append_attribution(json, range.attribution);
  json.close('}').close('}');
  out += '\n';
}

void append_step_kernels_line(std::string& out, const StepKernels& step) {
  JsonText json(out);
  json.open('{').field("schema", kKernelSchema).key("traced_step").open('{');
  append_rank(json, step.rank);
  json.field("step", step.step).field("kernels", step.kernels).field("unmatched", step.unmatched);
  json.field("missing", step.missing).field("busy_us", step.busy_us);
  json.field("attributed_us", step.attributed_us).field("idle_us", step.idle_us);
  json.field("host_wait_us", step.host_wait_us).close('}').close('}');
  out += '\n';
}

bool is_range_line(const JsonField& line) {
  return line.find("range").has_value();
}

bool is_step_kernels_line(const JsonField& line) {
  return line.find("traced_step").has_value();
}

StepKernels step_kernels_of(const JsonField& line) {
  const JsonField field = line["traced_step"];
  return {.step = field["step"].count(),
          .rank = rank_of(field),
          .kernels = field["kernels"].count(),
          .unmatched = field["unmatched"].count(),
          .missing = field["missing"].count(),
          .busy_us = field["busy_us"].number(),
          .attributed_us = field["attributed_us"].number(),
          .idle_us = field["idle_us"].number(),
          .host_wait_us = field["host_wait_us"].number()};
}

KernelLine kernel_line_of(const JsonField& line) {
  KernelLine kernel;
  kernel.step = line["step"].count();
  kernel.rank = rank_of(line);
  kernel.kind =
      one_of(line["kind"], std::array{ActivityKind::kernel, ActivityKind::memcpy, ActivityKind::memset});
  if (const auto op = line.find("op")) {
    kernel.op = op->text();
    kernel.layer = line["layer"].small(-1);
    kernel.phase = one_of(line["phase"], std::array{StepPhase::prefill, StepPhase::decode, StepPhase::mixed});
  }
  if (kernel.kind == ActivityKind::kernel) kernel.kernel = line["kernel"].text();
  if (const auto launch = line.find("launch")) kernel.launch = launch->small();
  kernel.stream = line["stream"].small();
  kernel.in_graph = line["graph"].boolean();
  kernel.start_ns = line["start_ns"].time_ns();
  kernel.us = line["us"].number();
  kernel.own_us = line["own_us"].number();
  kernel.gap_us = line["gap_us"].number();
  if (const auto cause = line.find("gap_cause")) {
    kernel.gap_cause = one_of(*cause, kShownCauses);
  } else if (kernel.gap_us > 0.0) {
    kernel.gap_cause = GapCause::unknown;
  }
  if (const auto delay = line.find("launch_delay_us")) kernel.launch_delay_us = delay->number();
  if (const auto bytes = line.find("bytes")) kernel.bytes = bytes->bytes();
  return kernel;
}

RangeLine range_line_of(const JsonField& line) {
  const JsonField field = line["range"];
  RangeLine range;
  range.rank = rank_of(field);
  range.first_step = field["first_step"].count();
  range.last_step = field["last_step"].count(-1);
  if (const auto error = field.find("error")) range.error = error->text();
  range.steps = field["steps"].count();
  range.kernels = field["kernels"].count();
  range.copies = field["copies"].count();
  range.dropped = field["dropped"].count();
  range.invalid = field["invalid"].count();
  range.outside = field["outside"].count();
  range.unmatched = field["unmatched"].count();
  range.missing = field["missing"].count();
  range.overhead_us = field["overhead_us"].number();
  range.own_clock = field["clock"].text() == kLibraryClock;
  range.busy_us = field["busy_us"].number();
  range.idle_us = field["idle_us"].number();
  range.host_wait_us = field["host_wait_us"].number();
  if (const auto of_profiler = field.find("of_profiler")) range.of_profiler = of_profiler->count();
  if (const auto strangers = field.find("strangers")) range.strangers = strangers_of(*strangers);
  if (const auto idle = field.find("idle")) range.idle = idle_of(*idle);
  range.attribution = attribution_of(field["attribution"]);
  return range;
}

}  // namespace minfer
