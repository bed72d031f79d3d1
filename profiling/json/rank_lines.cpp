#include "profiling/json/rank_lines.h"

#include <algorithm>
#include <optional>

#include "profiling/json/json_text.h"

namespace minfer {
namespace {

int64_t ns_of(const JsonField& us) {
  constexpr double kMostUs = 4e15;  // beyond what any machine has seen; so that sums do not overflow
  return static_cast<int64_t>(std::min(us.number(), kMostUs) * 1e3 + 0.5);
}

/// Of a field that older versions do not write.
int64_t ns_if_there(const JsonField& line, std::string_view name) {
  const std::optional<JsonField> field = line.find(name);
  return field ? ns_of(*field) : RankStep::kNotKnown;
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
  return {.step = line["step"].integer<int64_t>(),
          .rank = line["rank"].integer<int32_t>(),
          .begin_ns = line["begin_ns"].integer<int64_t>(),
          .end_ns = line["end_ns"].integer<int64_t>(),
          .computed_ns = ns_of(line["computed_us"]),
          .exchange_ns = ns_of(line["exchange_us"]),
          .waited_ns = ns_of(line["waited_us"]),
          .host_ns = ns_if_there(line, "host_us"),
          .launch_ns = ns_if_there(line, "launch_us"),
          .idle_ns = ns_if_there(line, "idle_us")};
}

}  // namespace minfer
