#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "profiling/report/report_data.h"
#include "profiling/summary/aggregate.h"

namespace minfer {

enum class ReportFormat : uint8_t { table, json, csv, md };
std::string_view name(ReportFormat format);

/// The order of the op table: most first, except `roofline` (furthest below the roofline first) and `name`.
enum class ReportSort : uint8_t { time, calls, mean, max, gbps, roofline, name };
std::string_view name(ReportSort sort);

/// The layout of the times. `flat` is the whole report with its table of ops.
enum class ReportView : uint8_t { flat, top_down, bottom_up };
std::string_view name(ReportView view);

struct ReportOptions {
  ReportFormat format = ReportFormat::table;
  ReportView view = ReportView::flat;
  ReportSort sort = ReportSort::time;
  size_t top = 20;         ///< most ops listed; 0: all
  size_t slowest = 5;      ///< slowest steps listed
  StepFilter filter = {};  ///< limits the report to these steps
  std::string op = {};     ///< the only op in tables of ops; empty: all
  bool colour = false;     ///< bold titles in format `table`
  int indent = 2;          ///< of format `json`; -1: all on one line
  bool launches = true;    ///< list the kinds of launches, in format `json`
};

/// The report on a profile: the recording, steps by phase, the wall time's parts, prefill against decode, ops, slowest steps, and
/// findings. `table` is text of at most kTextColumns; `md` has the same tables; `csv` is the op table alone; `json` is one object with
/// everything, times in microseconds. Throws Error if no step matches the filter. `data` must have the same filter.
std::string render_report(const ReportData& data, const ReportOptions& options);

/// One step for a terminal, at most kTextColumns wide: what was in the batch, how its wall time divides, and a bar
/// for each op, longest first. `colour` tells the phases apart by ANSI colours as well as by name.
std::string render_step(const StepSummary& step, const ProfileHeader& header, bool colour);

/// The profiler tiers that gave data; tier 0 always does.
struct TierData {
  bool kernels = false;  ///< tier 1
  int64_t counters = 0;  ///< tier 2: windows of the rank with most windows
};
TierData tier_data(const ReportData& data);

/// Puts rows in the order of `sort`, and keeps `top` at most; 0: all. `values`: of a row, by ReportSort but for the name.
template <class Row>
void sort_rows(std::vector<Row>& rows, ReportSort sort, size_t top, std::string Row::*name, auto values) {
  if (sort == ReportSort::name) {
    std::ranges::stable_sort(rows, {}, name);
  } else {
    std::ranges::stable_sort(rows, std::ranges::greater{},
                             [&](const Row& row) { return values(row)[static_cast<size_t>(sort)]; });
  }
  if (top != 0 && rows.size() > top) rows.resize(top);
}
/// The ops that the options ask for.
std::vector<OpAggregate> listed_ops(const Aggregate& sum, const ReportOptions& options);

/// Format `json` of render_report().
std::string render_report_json(const ReportData& data, const ReportOptions& options);

}  // namespace minfer
