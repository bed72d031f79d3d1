#include "profiling/report/device/range_report.h"

#include <algorithm>

#include <fmt/format.h>

namespace minfer {
namespace {

std::string a_step(double us, int64_t steps) {
  return steps > 0 ? three_digits(us / static_cast<double>(steps)) : "-";
}

/// "; tell_time: 1 fits no launch, 5 of no step".
std::string strangers_text(const RangeLine& range) {
  std::string text;
  for (const Stranger& stranger : range.strangers) {
    text += fmt::format("{} {} (", text.empty() ? "; without a place:" : ",", stranger.kernel);
    if (stranger.unmatched > 0) text += fmt::format("{} fit no launch", stranger.unmatched);
    if (stranger.outside > 0)
      text += fmt::format("{}{} of no step", stranger.unmatched > 0 ? ", " : "", stranger.outside);
    text += ")";
  }
  return text;
}

}  // namespace

std::string range_sentence(const RangeLine& range) {
  if (!range.error.empty())
    return fmt::format("kernels from step {} on: not traced: {}", range.first_step, range.error);
  if (range.kernels == 0)
    return fmt::format("kernels from step {} on: none was seen in {} steps", range.first_step, range.steps);
  std::string text = fmt::format(
      "kernels of steps {} to {} (tier 1): {} and {} copies; one ran for {:.1f} % of the time between a "
      "step's first and last",
      range.first_step, range.last_step, range.kernels, range.copies,
      100.0 * range.busy_us / (range.busy_us + range.idle_us));
  text += fmt::format("; {} dropped, {} with invalid times, {} fit no launch, {} launches without a kernel",
                      range.dropped, range.invalid, range.unmatched, range.missing);
  if (range.outside > 0) text += fmt::format(", {} of no step", range.outside);
  if (range.of_profiler > 0)
    text += fmt::format(", and {} of the profiler itself, left out", range.of_profiler);
  text += strangers_text(range);
  text += fmt::format(
      "; intervals between stamps differ from kernels' durations by {:.1f} % of the steps' time, from their "
      "time without overlap by {:.1f} %",
      100.0 * range.attribution.difference(), 100.0 * range.attribution.own_difference());
  if (range.overhead_us > 0.0)
    text += fmt::format("; the tracing says that it took {:.1f} ms", range.overhead_us * 1e-3);
  return text;
}

Table range_idle_table(const RangeLine& range) {
  const RangeIdle& idle = range.idle;
  Table table{
      fmt::format("What the device idled by its kernels, steps {} to {}", range.first_step, range.last_step),
      {"before what", "gaps", "us a step", "% of the step"}};
  const auto add = [&](std::string what, const GapSum& sum) {
    if (sum.gaps == 0) return;
    table.add(what, sum.gaps, a_step(sum.us, range.steps), percent(sum.us, range.attribution.step_us));
  };
  add("the first of a step", idle.start);
  add("launched too late (host)", idle.host);
  add("launched in time (device)", idle.device);
  add("not known when launched", idle.unknown);
  return table;
}

Table idle_ops_table(const RangeLine& range) {
  constexpr size_t kMostOps = 8;
  Table table{
      fmt::format("Ops before which it idled, steps {} to {} (us a step)", range.first_step, range.last_step),
      {"op", "gaps", "us", "too late (host)", "in time (device)"}};
  for (const OpGaps& op : range.idle.ops) {
    if (table.rows.size() == kMostOps) break;
    table.add(op.op, op.gaps(), a_step(op.us(), range.steps), a_step(op.host.us, range.steps),
              a_step(op.device.us, range.steps));
  }
  return table;
}

Table attribution_table(const RangeLine& range) {
  const Attribution& sum = range.attribution;
  Table table{
      fmt::format(
          "Ops against their kernels, steps {} to {} (us a step; differ: sum over runs, % of the step)",
          range.first_step, range.last_step),
      {"op", "runs", "stamps", "kernels", "overlap once", "differ", "differ once"}};
  for (const OpDifference& op : sum.ops) {
    table.add(op.op, op.runs, a_step(op.stamped_us, sum.steps), a_step(op.kernel_us, sum.steps),
              a_step(op.own_us, sum.steps), percent(op.difference_us, sum.step_us),
              percent(op.own_difference_us, sum.step_us));
  }
  return table;
}

void LaunchQueue::add(const KernelLine& kernel) {
  time_us_ += kernel.own_us + kernel.gap_us;
  if (kernel.kind != ActivityKind::kernel || kernel.launch_delay_us < 0.0) return;
  LaunchDelays& delays = by_graph_[kernel.in_graph ? 1 : 0];
  ++delays.kernels;
  delays.sum_us += kernel.launch_delay_us;
  delays.max_us = std::max(delays.max_us, kernel.launch_delay_us);
}

double LaunchQueue::mean_depth(bool in_graph) const {
  return time_us_ > 0.0 ? delays(in_graph).sum_us / time_us_ : 0.0;
}

Table launch_queue_table(const LaunchQueue& queue) {
  Table table{"From launch to begin (us; queue: kernels launched but not begun, mean over time)",
              {"launched", "kernels", "mean", "max", "queue"}};
  for (const bool in_graph : {false, true}) {
    const LaunchDelays& delays = queue.delays(in_graph);
    if (delays.kernels == 0) continue;
    table.add(in_graph ? "in a graph" : "each by itself", delays.kernels, delays.mean_us(), delays.max_us,
              queue.mean_depth(in_graph));
  }
  return table;
}

}  // namespace minfer
