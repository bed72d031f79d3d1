#include "profiling/json/line_members.h"

namespace minfer {

template <class Json>
void members(Json& json, Is<RankStep> auto& step) {
  json.told("schema", kRankSchema).member("step", step.step).member("rank", step.rank);
  json.member("begin_ns", step.begin_ns, kTime).member("end_ns", step.end_ns, kTime);
  json.member("computed_us", step.computed_ns, kDuration).member("exchange_us", step.exchange_ns, kDuration);
  json.member("waited_us", step.waited_ns, kDuration);
  json.optional("host_us", step.host_ns, kDuration, RankStep::kNotKnown);
  json.optional("launch_us", step.launch_ns, kDuration, RankStep::kNotKnown);
  json.optional("idle_us", step.idle_ns, kDuration, RankStep::kNotKnown);
}

template struct JsonOf<RankStep>;

}  // namespace minfer
