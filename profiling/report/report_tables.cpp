#include "profiling/report/report_tables.h"

#include <algorithm>

#include <fmt/format.h>

namespace minfer {
namespace {

constexpr size_t kNameColumns = 20;  // of an op that is not in the first column

std::string percent(double part, double whole) {
  return whole > 0.0 ? fmt::format("{:.1f}", 100.0 * part / whole) : std::string("-");
}

std::string ms(double us) {
  return three_digits(us * 1e-3);
}

// The groups that have steps, by name, and "all" if that is not the same.
std::vector<std::pair<std::string, const StepGroup*>> groups_of(const Aggregate& aggregate) {
  std::vector<std::pair<std::string, const StepGroup*>> groups;
  for (size_t i = 0; i < aggregate.by_phase.size(); ++i) {
    if (aggregate.by_phase[i].steps == 0) continue;
    groups.emplace_back(name(static_cast<StepPhase>(i)), &aggregate.by_phase[i]);
  }
  if (groups.size() != 1) groups.emplace_back("all", &aggregate.all);
  return groups;
}

}  // namespace

Table steps_table(const Aggregate& aggregate) {
  Table table{"Steps",
              {"phase", "steps", "wall ms", "mean ms", "median", "min", "max", "sd", "prefill tok",
               "decode tok", "tokens/s"},
              {}};
  for (const auto& [phase, group] : groups_of(aggregate)) {
    const Statistics& step = group->step_us;
    table.rows.push_back({phase, std::to_string(group->steps), ms(group->wall_us), ms(step.mean),
                          ms(step.median), ms(step.min), ms(step.max), ms(step.sd),
                          std::to_string(group->prefill_tokens), std::to_string(group->decode_tokens),
                          three_digits(group->tokens_per_s())});
  }
  return table;
}

Table wall_time_table(const Aggregate& aggregate) {
  Table table{"Where the wall time goes (%)", {"phase", "ops"}, {}};
  for (size_t i = 0; i < kHostSpans; ++i)
    table.columns.emplace_back(name(static_cast<HostSpan>(i)));
  table.columns.emplace_back("unattributed");
  for (const auto& [phase, group] : groups_of(aggregate)) {
    std::vector<std::string> row{phase, percent(group->gpu_us, group->wall_us)};
    for (const double host_us : group->host_us)
      row.push_back(percent(host_us, group->wall_us));
    row.push_back(percent(group->other_us(), group->wall_us));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table phases_table(const Aggregate& aggregate) {
  Table table{"Prefill and decode (time of the ops, mixed steps split)",
              {"phase", "ms", "%", "tokens", "us/token"},
              {}};
  const auto add = [&](std::string_view phase, const PhaseAggregate& sum) {
    const std::string per_token =
        sum.tokens > 0 ? three_digits(sum.us / static_cast<double>(sum.tokens)) : "-";
    table.rows.push_back({std::string(phase), ms(sum.us), percent(sum.us, aggregate.all.gpu_us),
                          std::to_string(sum.tokens), per_token});
  };
  add(name(StepPhase::prefill), aggregate.prefill);
  add(name(StepPhase::decode), aggregate.decode);
  return table;
}

Table ops_table(const std::vector<OpAggregate>& ops, double all_us) {
  Table table{"Ops (us of one call; roof%: of what the roofline allows)",
              {"op", "time%", "ms", "calls", "mean", "median", "min", "max", "sd", "GB/s", "TFLOP/s", "roof%",
               "bound"},
              {}};
  for (const OpAggregate& op : ops) {
    const Statistics& call = op.call_us;
    const bool known = op.bound != Bound::unknown;
    table.rows.push_back({op.op, percent(op.us, all_us), ms(op.us), std::to_string(op.calls),
                          three_digits(call.mean), three_digits(call.median), three_digits(call.min),
                          three_digits(call.max), three_digits(call.sd), three_digits(op.gbps()),
                          three_digits(op.tflops()),
                          known ? fmt::format("{:.0f}", 100.0 * op.roofline()) : "-",
                          known ? std::string(name(op.bound)) : "-"});
  }
  return table;
}

Table slowest_table(const std::vector<const StepSummary*>& steps) {
  Table table{"Slowest steps",
              {"step", "phase", "ms", "ops ms", "prefill tok", "decode tok", "requests", "preempted",
               "longest op", "ms"},
              {}};
  for (const StepSummary* step : steps) {
    const BatchShape& shape = step->batch.shape;
    const auto longest = std::ranges::max_element(step->ops, {}, &OpSummary::us);
    const bool any = longest != step->ops.end();
    table.rows.push_back({std::to_string(step->step), std::string(name(step->phase())), ms(step->wall_us),
                          ms(step->gpu_us), std::to_string(shape.prefill_tokens),
                          std::to_string(shape.decode_tokens),
                          std::to_string(shape.decode_sequences + shape.prefill_sequences),
                          std::to_string(step->batch.preempted),
                          any ? shortened(longest->op, kNameColumns) : "-", any ? ms(longest->us) : "-"});
  }
  return table;
}

}  // namespace minfer
