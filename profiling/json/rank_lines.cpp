#include "profiling/json/rank_lines.h"

#include <optional>

#include "profiling/json/json_text.h"

namespace minfer {
namespace {

/// Of a field that older versions do not write.
int64_t ns_if_there(const JsonField& line, std::string_view name) {
  const std::optional<JsonField> field = line.find(name);
  return field ? field->duration_ns() : RankStep::kNotKnown;
}

}  // namespace

void append_rank_line(std::string& out, const RankStep& step) {
  JsonText json(out);
  json.open('{').field("schema", kRankSchema).field("step", step.step).field("rank", step.rank);
  json.field("begin_ns", step.begin_ns).field("end_ns", step.end_ns);
  json.field("computed_us", us_of(step.computed_ns)).field("exchange_us", us_of(step.exchange_ns));
  json.field("waited_us", us_of(step.waited_ns));
  const auto add_known = [&](std::string_view name, int64_t ns) {
    if (ns != RankStep::kNotKnown) json.field(name, us_of(ns));
  };
  add_known("host_us", step.host_ns);
  add_known("launch_us", step.launch_ns);
  add_known("idle_us", step.idle_ns);
  json.close('}');
  out += '\n';
}

RankStep rank_step_of(const JsonField& line) {
  return {.step = line["step"].count(),
          .rank = line["rank"].small(),
          .begin_ns = line["begin_ns"].time_ns(),
          .end_ns = line["end_ns"].time_ns(),
          .computed_ns = line["computed_us"].duration_ns(),
          .exchange_ns = line["exchange_us"].duration_ns(),
          .waited_ns = line["waited_us"].duration_ns(),
          .host_ns = ns_if_there(line, "host_us"),
          .launch_ns = ns_if_there(line, "launch_us"),
          .idle_ns = ns_if_there(line, "idle_us")};
}

}  // namespace minfer
