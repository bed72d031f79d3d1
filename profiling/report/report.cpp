#include "profiling/report/report.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "profiling/findings/findings_report.h"
#include "profiling/report/device/counters_report.h"
#include "profiling/report/device/range_report.h"
#include "profiling/report/device/read_ahead.h"
#include "profiling/report/report_tables.h"
#include "profiling/report/view_tree.h"

namespace minfer {
namespace {

/// True if ops are timed by stamps that their kernels store, and not by the host's clock around calls.
bool has_device_stamps(const ProfileHeader& header) {
  return header.backend == "cuda";
}

/// "end stamps (3 steps), begin stamps (97 steps)".
std::string attributed_by(const Aggregate& sum) {
  std::string text;
  for (const auto& [source, steps] : sum.attributed_by)
    text += fmt::format("{}{} ({} step{})", text.empty() ? "" : ", ", source, steps, steps == 1 ? "" : "s");
  return text;
}

/// The experts that products of experts read; empty: there are none, or the number is not known.
std::string experts_sentence(const Aggregate& sum) {
  std::string text;
  for (const OpAggregate& op : sum.ops) {
    if (op.calls_with_experts > 0)
      text += fmt::format("{} {} {:.1f}", text.empty() ? "" : ",", op.op, op.mean_experts());
  }
  return text.empty() ? text : "experts that a call reads, by what the router chose:" + text;
}

/// Empty: no block went to or came from a disk.
std::string disk_sentence(const DiskCounts& disk) {
  if (disk == DiskCounts()) return {};
  std::string text = fmt::format("KV blocks on disk: {} written, {} read", disk.written, disk.read);
  if (disk.read > 0)
    text += fmt::format(" ({} prompt tokens, {:.2f} ms a block)", disk.hit_tokens,
                        us_of(disk.read_ns) * 1e-3 / static_cast<double>(disk.read));
  if (disk.dropped > 0) text += fmt::format(", {} not written: the queue or the disk was full", disk.dropped);
  if (disk.lost > 0) text += fmt::format(", {} damaged or gone", disk.lost);
  return text;
}

/// "tier 0 (device stamps), 1 (kernels of steps 60 to 110); asked for without a result: 2 (hardware counters)".
std::string tiers_text(const ReportData& data) {
  const TierData gave = tier_data(data);
  std::string text =
      fmt::format("tier 0 ({})", has_device_stamps(data.header) ? "device stamps" : "host clocks");
  if (gave.kernels) {
    text += ", 1 (kernels of";
    const char* separator = " steps ";
    for (const RangeLine& range : data.ranges) {
      if (range.kernels == 0) continue;
      text += fmt::format("{}{} to {}", separator, range.first_step, range.last_step);
      separator = ", ";
    }
    text += ")";
  }
  if (gave.counters > 0)
    text += fmt::format(", 2 (hardware counters, {} window{})", gave.counters, gave.counters == 1 ? "" : "s");
  std::string nothing;
  if (data.header.asked.kernels && !gave.kernels) nothing += " 1 (kernels)";
  if (data.header.asked.counters && gave.counters == 0)
    nothing += fmt::format("{} 2 (hardware counters)", nothing.empty() ? "" : ",");
  return nothing.empty() ? text : text + "; asked for without a result:" + nothing;
}

/// The part of the recording that the report covers; empty: all of it.
std::string filter_text(const ReportData& data) {
  const StepFilter& filter = data.filter;
  if (filter.is_all()) return {};
  if (filter.phase && !filter.steps && filter.request.empty())
    return fmt::format("; below: the {} {} ones", data.sum.all.steps, name(*filter.phase));
  return fmt::format("; below: {} {}", data.sum.all.steps, filter.text());
}

std::vector<std::string> introduction(const ReportData& data) {
  const ProfileHeader& header = data.header;
  const Aggregate& sum = data.sum;
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("{} on {} ({} threads), {}", header.model, header.device, header.threads, header.backend));
  lines.push_back(fmt::format("minfer {}, profiler {}", header.version, tiers_text(data)));
  // A step's line has the number dropped before it; for a cut-off file, later drops are unknown.
  const std::string_view known =
      data.note.empty() ? "" : " before the last (after it: not known, the file is cut)";
  lines.push_back(fmt::format("steps {} to {}: {} recorded, {} dropped{}{}", data.first_step, data.last_step,
                              data.recorded, sum.dropped, known, filter_text(data)));
  lines.push_back(
      fmt::format("attributed: {:.1f} % of the steps' wall time, {:.1f} % of the worst step's; by {}",
                  100.0 * sum.attributed, 100.0 * sum.least_attributed, attributed_by(sum)));
  if (sum.by_begin_stamps > 0 && has_device_stamps(header)) {
    lines.emplace_back(
        "with begin stamps alone (graphs), an op's time runs to the next op's begin and includes the "
        "device's idle time between them");
  }
  lines.push_back(header.ceilings.known() ? "ceilings measured on this machine: " + ceilings_text(header) +
                                                measured_text(header.ceilings)
                                          : std::string("ceilings not measured: no roofline"));
  if (header.ceilings.known()) lines.push_back(units_text(header));
  if (std::string experts = experts_sentence(sum); !experts.empty()) lines.push_back(std::move(experts));
  if (std::string disk = disk_sentence(sum.disk); !disk.empty()) lines.push_back(std::move(disk));
  for (const RangeLine& range : data.ranges)
    lines.push_back(range_sentence(range));
  std::ranges::copy(counter_sentences(data.counters, data.window_cost), std::back_inserter(lines));
  std::ranges::move(rank_counter_sentences(data.counters, data.rank_counters, data.ranks.ranks.size()),
                    std::back_inserter(lines));
  if (!data.note.empty()) lines.push_back("note: " + data.note);
  return lines;
}

/// `is_narrow`: wide ones as two, so that they fit on a terminal.
std::vector<Table> tables_of(const ReportData& data, const ReportOptions& options, bool is_narrow) {
  const Aggregate& sum = data.sum;
  const std::vector<OpAggregate> ops = listed_ops(sum, options);
  std::vector<Table> tables{steps_table(sum), wall_time_table(sum)};
  const auto add_if_any = [&](Table table) {
    if (!table.rows.empty()) tables.push_back(std::move(table));
  };
  const auto add_all = [&](auto more) { std::ranges::move(more, std::back_inserter(tables)); };
  add_if_any(prediction_table(sum));
  add_if_any(drafts_table(data.drafts));
  tables.push_back(breakdown_table(
      "Wall time, each instant once (%; by tier 0: host at the most, idle at the least)", data.breakdown));
  if (data.traced_breakdown.steps > 0)
    tables.push_back(
        breakdown_table(fmt::format("The same by CUPTI, {} traced steps (%)", data.traced_breakdown.steps),
                        data.traced_breakdown.by_phase));
  if (has_device_stamps(data.header)) {
    tables.push_back(idle_table(sum));
    tables.push_back(device_use_table(device_use(sum, data.launches, data.ranges, data.counters)));
  }
  tables.push_back(phases_table(sum));
  is_narrow ? add_all(narrow_ops_tables(ops, sum.all.gpu_us))
            : tables.push_back(ops_table(ops, sum.all.gpu_us));
  add_if_any(read_ahead_table(data.read_ahead.pairs()));
  if (!data.launches.empty()) tables.push_back(kernels_table(ops, data.launches));
  add_if_any(converted_table(data.header.ops));
  if (data.header.memory.total_bytes > 0)
    tables.push_back(memory_table(data.header.memory, data.memory_at_end));
  for (const RangeLine& range : data.ranges) {
    add_if_any(range_idle_table(range));
    add_if_any(idle_ops_table(range));
    add_if_any(attribution_table(range));
  }
  add_if_any(exchange_table(sum.ops));
  add_if_any(rank_table(data.ranks));
  add_if_any(traced_ranks_table(data.ranges, data.rank_ranges));
  add_if_any(rank_counters_table(data.counters, data.rank_counters));
  add_if_any(launch_queue_table(data.launch_queue));
  add_all(counter_tables(data.counters, is_narrow));
  for (const CounterWork& work : first_works(data.counters))
    add_if_any(
        counted_pairs_table(work, counted_pairs(data.header.ops, work, data.read_ahead.pairs(work.phase))));
  tables.push_back(slowest_table(data.slowest));
  if (data.outliers.steps > 0) tables.push_back(outliers_table(data.outliers));
  return tables;
}

std::vector<std::string> closing(const ReportData& data, const ReportOptions& options) {
  const Aggregate& sum = data.sum;
  std::vector<std::string> lines;
  if (options.top != 0 && options.op.empty() && sum.ops.size() > options.top) {
    lines.push_back(fmt::format("{} more ops: --top 0 lists all", sum.ops.size() - options.top));
  }
  if (!data.read_ahead.pairs().empty()) lines.emplace_back(kReadAheadSentence);
  std::string over = over_roofline_sentence(sum.ops, data.launches, data.header.cache_bytes);
  if (!over.empty()) lines.push_back(std::move(over));
  return lines;
}

/// For a terminal, or as Markdown.
std::string render_tables(const ReportData& data, const ReportOptions& options, bool is_text) {
  std::string text = is_text ? "" : "## Profile\n\n";
  const auto add_lines = [&](const std::vector<std::string>& lines) {
    for (const std::string& line : lines)
      text += (is_text ? wrapped(line, kTextColumns) : "- " + line) + "\n";
  };
  add_lines(introduction(data));
  for (Table& table : tables_of(data, options, is_text)) {
    if (is_text) table.title = bold_if(options.colour, table.title);
    text += "\n" + (is_text ? text_table(table, kTextColumns, LongNames::wrap) : markdown_table(table));
  }
  const std::vector<std::string> lines = closing(data, options);
  if (!lines.empty()) text += '\n';
  add_lines(lines);
  if (data.diagnosis)
    text += "\n" +
            (is_text ? findings_text(*data.diagnosis, options.colour) : findings_markdown(*data.diagnosis));
  return text;
}

}  // namespace

TierData tier_data(const ReportData& data) {
  TierData gave{
      .kernels = std::ranges::any_of(data.ranges, [](const RangeLine& range) { return range.kernels > 0; }),
      .counters = data.counters.windows};
  for (const auto& [rank, counters] : data.rank_counters)
    gave.counters = std::max(gave.counters, counters.windows);
  return gave;
}

std::string_view name(ReportFormat format) {
  static constexpr std::array<std::string_view, 4> kNames{"table", "json", "csv", "md"};
  return kNames[static_cast<size_t>(format)];
}

std::string_view name(ReportView view) {
  static constexpr std::array<std::string_view, 3> kNames{"flat", "top-down", "bottom-up"};
  return kNames[static_cast<size_t>(view)];
}

std::string_view name(ReportSort sort) {
  static constexpr std::array<std::string_view, 7> kNames{"time", "calls",    "mean", "max",
                                                          "gbps", "roofline", "name"};
  return kNames[static_cast<size_t>(sort)];
}

std::vector<OpAggregate> listed_ops(const Aggregate& sum, const ReportOptions& options) {
  std::vector<OpAggregate> ops = sum.ops;
  if (!options.op.empty()) std::erase_if(ops, [&](const OpAggregate& op) { return op.op != options.op; });
  if (ops.empty() && !options.op.empty()) fail("the steps have no op \"{}\"", options.op);
  sort_rows(ops, options.sort, options.top, &OpAggregate::op, [](const OpAggregate& op) {
    return std::array{op.us,         static_cast<double>(op.calls), op.mean_us(), op.call_us.max, op.gbps(),
                      -op.roofline()};
  });
  return ops;
}

std::string render_report(const ReportData& data, const ReportOptions& options) {
  const Aggregate& sum = data.sum;
  if (data.recorded == 0) fail("the profile holds no step{}", data.note.empty() ? "" : ": " + data.note);
  if (sum.all.steps == 0) {
    if (data.filter.steps || !data.filter.request.empty())
      fail("the profile holds none of the {}, among steps {} to {}", data.filter.text(), data.first_step,
           data.last_step);
    fail("the profile has no {} step among its {}", name(*data.filter.phase), data.recorded);
  }
  if (options.view != ReportView::flat) return render_view(data, options);
  switch (options.format) {
    case ReportFormat::json:
      return render_report_json(data, options);
    case ReportFormat::csv:
      return csv_table(ops_table(listed_ops(sum, options), sum.all.gpu_us));
    case ReportFormat::md:
    case ReportFormat::table:
      break;
  }
  return render_tables(data, options, options.format == ReportFormat::table);
}

}  // namespace minfer
