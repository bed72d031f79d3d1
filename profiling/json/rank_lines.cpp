#include "profiling/json/rank_lines.h"

#include "profiling/json/json_text.h"

namespace minfer {
namespace {

int64_t ns_of(const JsonField& us) {
  return static_cast<int64_t>(us.number() * 1e3 + 0.5);
}

}  // namespace

void append_rank_line(std::string& out, const RankStep& step) {
  JsonText json(out);
  json.open('{').field("schema", kRankSchema).field("step", step.step).field("rank", step.rank);
  json.field("begin_ns", step.begin_ns).field("end_ns", step.end_ns);
  json.field("computed_us", us_of(step.computed_ns)).field("exchange_us", us_of(step.exchange_ns));
  json.field("waited_us", us_of(step.waited_ns)).close('}');
  out += '\n';
}

RankStep rank_step_of(const JsonField& line) {
  return {.step = line["step"].integer<int64_t>(),
          .rank = line["rank"].integer<int32_t>(),
          .begin_ns = line["begin_ns"].integer<int64_t>(),
          .end_ns = line["end_ns"].integer<int64_t>(),
          .computed_ns = ns_of(line["computed_us"]),
          .exchange_ns = ns_of(line["exchange_us"]),
          .waited_ns = ns_of(line["waited_us"])};
}

}  // namespace minfer
