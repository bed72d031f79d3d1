#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "profiling/json/json_reader.h"
#include "profiling/report/aggregate.h"

namespace minfer {

enum class ReportFormat : uint8_t { table, json, csv, md };
std::string_view name(ReportFormat format);

/// What the op table is ordered by: most first, except `roofline` (furthest below it first) and `name`.
enum class ReportSort : uint8_t { time, calls, mean, max, gbps, roofline, name };
std::string_view name(ReportSort sort);

struct ReportOptions {
  ReportFormat format = ReportFormat::table;
  ReportSort sort = ReportSort::time;
  size_t top = 20;                                ///< ops listed at most; 0: all
  size_t slowest = 5;                             ///< slowest steps listed
  std::optional<StepPhase> phase = std::nullopt;  ///< only steps of this phase
  bool colour = false;                            ///< bold titles in format `table`
};

/// The report on a profile: what was recorded, steps by phase, where the wall time went, prefill against
/// decode, ops, slowest steps, and what holds the time. `table` is text of at most 100 columns; `md` the same
/// tables; `csv` the op table alone; `json` one object with all of it, times in microseconds. Throws Error if
/// no step is of the phase asked for.
std::string render_report(const ProfileFile& file, const ReportOptions& options);

/// The ops that lie furthest above what the roofline allows, in one sentence; without ceilings those that
/// take most time.
std::string what_holds_the_time(const Aggregate& aggregate);

/// Ops in the order asked for, `top` at most.
std::vector<OpAggregate> sorted_ops(std::vector<OpAggregate> ops, ReportSort sort, size_t top);

/// The `count` longest steps of the phase, or of all, longest first.
std::vector<const StepSummary*> slowest_steps(const std::vector<StepSummary>& steps,
                                              std::optional<StepPhase> phase, size_t count);

/// Format `json` of render_report().
std::string render_report_json(const ProfileFile& file, const Aggregate& aggregate,
                               const ReportOptions& options);

}  // namespace minfer
