// Reports on steps and files in memory, which are short in tests: a program reads its profiles line by line.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "profiling/report/report.h"

namespace minfer {

/// The sums of a file.
inline ReportData report_data(const ProfileFile& file, StepFilter filter, size_t slowest) {
  ReportSums sums(std::move(filter), slowest);
  sums.header(file.header);
  for (const KernelLaunch& launch : file.launches)
    sums.launch(launch);
  for (const StepSummary& step : file.steps)
    sums.add(step);
  for (const RankStep& step : file.rank_steps)
    sums.rank_step(step);
  for (const RangeLine& range : file.ranges)
    sums.range(range);
  for (const StepKernels& step : file.traced)
    sums.traced_step(step);
  for (const KernelLine& kernel : file.kernels)
    sums.kernel(kernel);
  for (const CounterWindow& window : file.counters)
    sums.counters(window);
  for (const EndedRequest& request : file.requests)
    sums.request(request);
  for (const HostSample& sample : file.host)
    sums.host(sample);
  for (const DeviceSample& sample : file.devices)
    sums.device(sample);
  for (const KeptTrial& trial : file.trials)
    sums.trial(trial);
  sums.memory(file.memory_at_end);
  return sums.finish(file.note);
}

inline std::string render_report(const ProfileFile& file, const ReportOptions& options) {
  return render_report(report_data(file, options.filter, options.slowest), options);
}

/// Sums up the steps of `phase`, or all steps. The drops are always of the whole span.
inline Aggregate aggregate(std::span<const StepSummary> steps,
                           std::optional<StepPhase> phase = std::nullopt) {
  Aggregator sum;
  for (const StepSummary& step : steps) {
    sum.set_dropped(step.dropped);
    if (!phase || step.phase() == *phase) sum.add(step);
  }
  return sum.result();
}

inline WindowCost window_cost(std::span<const CounterWindow> windows, std::span<const StepSummary> steps) {
  WindowCostSum sum;
  for (const StepSummary& step : steps)
    sum.add(step);
  for (const CounterWindow& window : windows)
    sum.add(window);
  return sum.result();
}

}  // namespace minfer
