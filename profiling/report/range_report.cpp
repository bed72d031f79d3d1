#include "profiling/report/range_report.h"

#include <fmt/format.h>

namespace minfer {
namespace {

std::string a_step(double us, int64_t steps) {
  return steps > 0 ? three_digits(us / static_cast<double>(steps)) : "-";
}

}  // namespace

std::string range_sentence(const RangeLine& range) {
  if (!range.error.empty())
    return fmt::format("kernels from step {} on: not traced: {}", range.first_step, range.error);
  if (range.kernels == 0)
    return fmt::format("kernels from step {} on: none was seen in {} steps", range.first_step, range.steps);
  std::string text = fmt::format(
      "kernels of steps {} to {} (tier 1): {} and {} copies; one ran for {:.1f} % of the time between a "
      "step's "
      "first and last",
      range.first_step, range.last_step, range.kernels, range.copies,
      100.0 * range.busy_us / (range.busy_us + range.idle_us));
  text += fmt::format("; {} dropped, {} with invalid times, {} fit no launch, {} launches without a kernel",
                      range.dropped, range.invalid, range.unmatched, range.missing);
  if (range.outside > 0) text += fmt::format(", {} of no step", range.outside);
  text += fmt::format(
      "; intervals between stamps differ from kernels' durations by {:.1f} % of the steps' time, from their "
      "time without overlap by {:.1f} %",
      100.0 * range.attribution.difference(), 100.0 * range.attribution.own_difference());
  if (range.overhead_us > 0.0)
    text += fmt::format("; the tracing says that it took {:.1f} ms", range.overhead_us * 1e-3);
  return text;
}

Table attribution_table(const RangeLine& range) {
  const Attribution& sum = range.attribution;
  Table table{
      fmt::format(
          "Ops against their kernels, steps {} to {} (us a step; differ: sum over runs, % of the step)",
          range.first_step, range.last_step),
      {"op", "runs", "stamps", "kernels", "overlap once", "differ", "differ once"},
      {}};
  for (const OpDifference& op : sum.ops) {
    table.rows.push_back({op.op, std::to_string(op.runs), a_step(op.stamped_us, sum.steps),
                          a_step(op.kernel_us, sum.steps), a_step(op.own_us, sum.steps),
                          percent(op.difference_us, sum.step_us),
                          percent(op.own_difference_us, sum.step_us)});
  }
  return table;
}

}  // namespace minfer
