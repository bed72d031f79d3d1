#include "profiling/report/report.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "kernels/error.h"
#include "profiling/report/counters_report.h"
#include "profiling/report/range_report.h"
#include "profiling/report/report_tables.h"

namespace minfer {
namespace {

constexpr size_t kReportColumns = 100;
constexpr size_t kNamedOps = 3;

/// Ops are timed by stamps that their kernels store, not by the host's clock around calls.
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

std::vector<std::string> introduction(const ProfileFile& file, const Aggregate& sum,
                                      const ReportOptions& options) {
  const ProfileHeader& header = file.header;
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("{} on {} ({} threads), {}", header.model, header.device, header.threads, header.backend));
  lines.push_back(fmt::format("minfer {}, profiler tier 0 ({})", header.version,
                              has_device_stamps(header) ? "device stamps" : "host clocks"));
  lines.push_back(fmt::format(
      "steps {} to {}: {} recorded, {} dropped{}", file.steps.front().step, file.steps.back().step,
      file.steps.size(), sum.dropped,
      options.phase ? fmt::format("; below: the {} {} ones", sum.all.steps, name(*options.phase)) : ""));
  lines.push_back(
      fmt::format("attributed: {:.1f} % of the steps' wall time, {:.1f} % of the worst step's; by {}",
                  100.0 * sum.attributed, 100.0 * sum.least_attributed, attributed_by(sum)));
  if (sum.attributed_by.contains(name(IdleSource::none)) && has_device_stamps(header)) {
    lines.emplace_back(
        "by begin stamps alone (graphs) an op's time runs to the next op's begin: what the device idled "
        "between them is part of "
        "it");
  }
  lines.push_back(header.ceilings.known() ? "ceilings measured on this machine: " + ceilings_text(header)
                                          : std::string("ceilings not measured: no roofline"));
  for (const RangeLine& range : file.ranges)
    lines.push_back(range_sentence(range));
  std::ranges::copy(
      counter_sentences(aggregate_counters(file.counters), window_cost(file.counters, file.steps)),
      std::back_inserter(lines));
  if (!file.note.empty()) lines.push_back("note: " + file.note);
  return lines;
}

std::vector<Table> tables_of(const ProfileFile& file, const Aggregate& sum, const ReportOptions& options) {
  const std::vector<OpAggregate> ops = sorted_ops(sum.ops, options.sort, options.top);
  std::vector<Table> tables{steps_table(sum), wall_time_table(sum)};
  if (has_device_stamps(file.header)) tables.push_back(idle_table(sum));
  tables.push_back(phases_table(sum));
  tables.push_back(ops_table(ops, sum.all.gpu_us));
  if (!file.launches.empty()) tables.push_back(kernels_table(ops, file.launches));
  if (file.header.memory.total_bytes > 0) tables.push_back(memory_table(file.header.memory));
  for (const RangeLine& range : file.ranges) {
    if (!range.attribution.ops.empty()) tables.push_back(attribution_table(range));
  }
  std::ranges::move(counter_tables(aggregate_counters(file.counters)), std::back_inserter(tables));
  tables.push_back(slowest_table(slowest_steps(file.steps, options.phase, options.slowest)));
  return tables;
}

std::vector<std::string> closing(const ProfileFile& file, const Aggregate& sum,
                                 const ReportOptions& options) {
  std::vector<std::string> lines;
  if (options.top != 0 && sum.ops.size() > options.top) {
    lines.push_back(fmt::format("{} more ops: --top 0 lists all", sum.ops.size() - options.top));
  }
  const auto from_cache = [](const OpAggregate& op) { return op.roofline() > 1.0; };
  if (std::ranges::any_of(sum.ops, from_cache)) {
    std::string cause =
        "over 100 % of the roofline: data came from a cache, faster than the memory that was measured";
    if (has_device_stamps(file.header)) {
      cause += ", or was fetched before the op's stamp, in time that the op in front was charged for";
    }
    lines.push_back(std::move(cause));
  }
  lines.push_back(what_holds_the_time(sum));
  return lines;
}

std::string render_text(const ProfileFile& file, const Aggregate& sum, const ReportOptions& options) {
  std::string text;
  for (const std::string& line : introduction(file, sum, options))
    text += wrapped(line, kReportColumns) + "\n";
  for (Table& table : tables_of(file, sum, options)) {
    if (options.colour) table.title = "\x1b[1m" + table.title + "\x1b[0m";
    text += '\n';
    text += text_table(table, kReportColumns);
  }
  text += '\n';
  for (const std::string& line : closing(file, sum, options))
    text += wrapped(line, kReportColumns) + "\n";
  return text;
}

std::string render_markdown(const ProfileFile& file, const Aggregate& sum, const ReportOptions& options) {
  std::string text = "## Profile\n\n";
  for (const std::string& line : introduction(file, sum, options))
    text += "- " + line + "\n";
  for (const Table& table : tables_of(file, sum, options)) {
    text += '\n';
    text += markdown_table(table);
  }
  text += '\n';
  for (const std::string& line : closing(file, sum, options))
    text += "- " + line + "\n";
  return text;
}

}  // namespace

std::string_view name(ReportFormat format) {
  static constexpr std::array<std::string_view, 4> kNames{"table", "json", "csv", "md"};
  return kNames[static_cast<size_t>(format)];
}

std::string_view name(ReportSort sort) {
  static constexpr std::array<std::string_view, 7> kNames{"time", "calls",    "mean", "max",
                                                          "gbps", "roofline", "name"};
  return kNames[static_cast<size_t>(sort)];
}

std::vector<OpAggregate> sorted_ops(std::vector<OpAggregate> ops, ReportSort sort, size_t top) {
  const auto descending = [&](auto value) {
    std::ranges::stable_sort(ops,
                             [&](const OpAggregate& a, const OpAggregate& b) { return value(a) > value(b); });
  };
  switch (sort) {
    case ReportSort::time:
      descending([](const OpAggregate& op) { return op.us; });
      break;
    case ReportSort::calls:
      descending([](const OpAggregate& op) { return op.calls; });
      break;
    case ReportSort::mean:
      descending([](const OpAggregate& op) { return op.mean_us(); });
      break;
    case ReportSort::max:
      descending([](const OpAggregate& op) { return op.call_us.max; });
      break;
    case ReportSort::gbps:
      descending([](const OpAggregate& op) { return op.gbps(); });
      break;
    case ReportSort::roofline:
      descending([](const OpAggregate& op) { return -op.roofline(); });
      break;
    case ReportSort::name:
      std::ranges::stable_sort(ops, {}, &OpAggregate::op);
      break;
  }
  if (top != 0 && ops.size() > top) ops.resize(top);
  return ops;
}

std::vector<const StepSummary*> slowest_steps(const std::vector<StepSummary>& steps,
                                              std::optional<StepPhase> phase, size_t count) {
  std::vector<const StepSummary*> chosen;
  for (const StepSummary& step : steps) {
    if (!phase || step.phase() == *phase) chosen.push_back(&step);
  }
  std::ranges::stable_sort(chosen, std::ranges::greater{}, &StepSummary::wall_us);
  if (chosen.size() > count) chosen.resize(count);
  return chosen;
}

std::string what_holds_the_time(const Aggregate& sum) {
  std::vector<OpAggregate> ops = sum.ops;
  if (ops.empty()) return "What holds the time: no op was recorded.";
  const bool known =
      std::ranges::any_of(ops, [](const OpAggregate& op) { return op.bound != Bound::unknown; });
  const auto at_stake = [&](const OpAggregate& op) { return known ? op.above_floor_us() : op.us; };
  std::ranges::stable_sort(ops, std::ranges::greater{}, at_stake);
  if (ops.size() > kNamedOps) ops.resize(kNamedOps);
  std::string text = known ? "What holds the time, above what the roofline allows:" : "What holds the time:";
  for (const OpAggregate& op : ops) {
    if (at_stake(op) <= 0.0) continue;
    text += fmt::format("{} {} {} ms ({:.1f} % of the ops' time)", text.back() == ':' ? "" : ",", op.op,
                        three_digits(at_stake(op) * 1e-3), 100.0 * at_stake(op) / sum.all.gpu_us);
  }
  return text.back() == ':' ? "What holds the time: nothing, every op is at its roofline." : text + ".";
}

std::string render_report(const ProfileFile& file, const ReportOptions& options) {
  const Aggregate sum = aggregate(file.steps, options.phase);
  if (sum.all.steps == 0 && options.phase)
    fail("the profile has no {} step among its {}", name(*options.phase), file.steps.size());
  if (sum.all.steps == 0) fail("the profile holds no step{}", file.note.empty() ? "" : ": " + file.note);
  switch (options.format) {
    case ReportFormat::json:
      return render_report_json(file, sum, options);
    case ReportFormat::csv:
      return csv_table(ops_table(sorted_ops(sum.ops, options.sort, options.top), sum.all.gpu_us));
    case ReportFormat::md:
      return render_markdown(file, sum, options);
    case ReportFormat::table:
      break;
  }
  return render_text(file, sum, options);
}

}  // namespace minfer
