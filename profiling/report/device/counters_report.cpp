#include "profiling/report/device/counters_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace minfer {
namespace {

bool is_same_work(const CounterWork& a, const CounterWork& b) {
  return a.phase == b.phase && a.graph_batch == b.graph_batch &&
         std::ranges::equal(a.ops, b.ops, [](const CounterOp& x, const CounterOp& y) {
           return x.op == y.op && x.phase == y.phase && x.calls == y.calls;
         });
}

/// The mean of both, each for its steps; what one lacks is the other's.
double mixed(double a, double a_steps, double b, double b_steps) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  return (a * a_steps + b * b_steps) / (a_steps + b_steps);
}

void add_to(CounterWork& sum, const CounterWork& work) {
  const auto before = static_cast<double>(std::max<int64_t>(sum.steps, 1));
  const auto more = static_cast<double>(std::max<int64_t>(work.steps, 1));
  for (size_t i = 0; i < sum.ops.size(); ++i) {
    CounterOp& op = sum.ops[i];
    const CounterOp& other = work.ops[i];
    op.us = mixed(op.us, before, other.us, more);
    op.samples = op.samples < 0 || other.samples < 0 ? -1 : op.samples + other.samples;
    op.counted_read_bytes = mixed(op.counted_read_bytes, before, other.counted_read_bytes, more);
    // Windows share most of the steps that their estimates rest on: errors do not shrink with their number.
    op.read_error_bytes = mixed(op.read_error_bytes, before, other.read_error_bytes, more);
    for (const Counter counter : kAllCounters)
      op.measured[counter] = mixed(op.measured[counter], before, other.measured[counter], more);
  }
  sum.steps += work.steps;
  sum.replays += work.steps;
}

/// Adds bytes of a step to those of all, which may not be known yet.
void add_known(double& sum, double bytes) {
  if (std::isfinite(bytes)) sum = (std::isfinite(sum) ? sum : 0.0) + bytes;
}

std::string share_text(double part, double whole) {
  return whole > 0.0 ? fmt::format("{:.1f} %", 100.0 * part / whole) : std::string("what was not sampled");
}

std::string samples_text(const CounterOp& op) {
  if (op.samples == 0 && !op.measured.has(Counter::dram_read_bytes)) return "not sampled";
  return op.samples < 0 ? "-" : std::to_string(op.samples);
}

/// A sum over whole steps, as MB per step.
std::string mb_a_step(const CounterAggregate& counters, double bytes) {
  return counters.steps > 0 ? three_digits(bytes / static_cast<double>(counters.steps) * 1e-6) : "-";
}

void add_row(Table& table, int32_t rank, const CounterAggregate& counters) {
  const double gbps = counters.steps_us > 0.0 ? counters.read_bytes / counters.steps_us * 1e-3 : 0.0;
  const double of_it = counters.read_bytes / counters.counted_read_bytes;  // of no step: not a number
  table.add(rank, counters.windows, counters.steps, mb_a_step(counters, counters.read_bytes),
            percent(of_it, 1.0), counters.steps > 0 ? three_digits(gbps) : "-",
            mb_a_step(counters, known_written_bytes(counters)), mb_a_step(counters, counters.received_bytes),
            mb_a_step(counters, counters.sent_bytes), percent(mean_share(counters, Counter::sm_active), 1.0),
            percent(mean_share(counters, Counter::tensor_active), 1.0));
}

}  // namespace

void add_window(CounterAggregate& sum, const CounterWindow& window) {
  if (!window.error.empty()) {
    sum.error = window.error;
    return;
  }
  ++sum.windows;
  sum.us += window.us;
  sum.interval_ns = window.interval_ns;
  sum.lost += window.lost;
  sum.fitted += window.clock == SampleClock::fitted ? 1 : 0;
  for (const CounterStep& step : window.steps) {
    if (!step.measured.has(Counter::dram_read_bytes)) continue;
    ++sum.steps;
    sum.steps_us += step.us * step.covered;
    add_known(sum.received_bytes, step.measured[Counter::nvlink_received_bytes]);
    add_known(sum.sent_bytes, step.measured[Counter::nvlink_sent_bytes]);
    sum.read_bytes += step.measured[Counter::dram_read_bytes];
    sum.counted_read_bytes += static_cast<double>(step.counted_read_bytes);
    if (!step.measured.has(Counter::dram_written_bytes)) continue;
    sum.written_bytes += step.measured[Counter::dram_written_bytes];
    sum.counted_written_bytes += static_cast<double>(step.counted_written_bytes);
  }
  for (const CounterWork& work : window.work) {
    const auto found =
        std::ranges::find_if(sum.work, [&](const CounterWork& each) { return is_same_work(each, work); });
    if (found != sum.work.end()) {
      add_to(*found, work);
    } else {
      sum.work.push_back(work);
      sum.work.back().replays = work.steps;
    }
  }
}

void sort_work(CounterAggregate& sum) {
  std::ranges::stable_sort(sum.work, std::ranges::greater{}, &CounterWork::steps);
}

double known_written_bytes(const CounterAggregate& counters) {
  return counters.counted_written_bytes > 0.0 ? counters.written_bytes
                                              : std::numeric_limits<double>::quiet_NaN();
}

double mean_share(const CounterAggregate& counters, Counter counter) {
  double us_sum = 0.0, sum = 0.0;
  for (const CounterWork& work : counters.work) {
    for (const CounterOp& op : work.ops) {
      if (!op.measured.has(counter)) continue;
      const double us = op.us * static_cast<double>(work.steps);
      sum += op.measured[counter] * us;
      us_sum += us;
    }
  }
  return us_sum > 0.0 ? sum / us_sum : std::numeric_limits<double>::quiet_NaN();
}

std::vector<std::string> counter_sentences(const CounterAggregate& counters, const WindowCost& cost) {
  std::vector<std::string> lines;
  if (counters.windows > 0) {
    lines.push_back(fmt::format(
        "hardware counters (tier 2): {} windows of {:.1f} ms, a sample every {:.1f} us, {} lost{}; of the "
        "whole device",
        counters.windows, counters.us * 1e-3 / static_cast<double>(counters.windows),
        static_cast<double>(counters.interval_ns) * 1e-3, counters.lost,
        counters.fitted > 0 ? fmt::format(", the clock fitted in {} windows", counters.fitted) : ""));
  }
  if (counters.steps > 0) {
    lines.push_back(fmt::format("{} whole steps read {} of the bytes counted for them, and wrote {}",
                                counters.steps, share_text(counters.read_bytes, counters.counted_read_bytes),
                                share_text(counters.written_bytes, counters.counted_written_bytes)));
  }
  if (cost.inside > 0) {
    lines.push_back(
        fmt::format("{} steps beside an open window took {:+.2f} % against {} of the same kind without one, "
                    "each held against those within {} steps of it",
                    cost.inside, 100.0 * cost.share(), cost.outside, WindowCostSum::kNeighbours));
  }
  if (!counters.error.empty()) lines.push_back(counters.error);
  return lines;
}

std::vector<Table> counter_tables(const CounterAggregate& counters, bool is_narrow) {
  constexpr size_t kActivity = 8;  // the column that it begins with
  std::vector<Table> tables;
  for (const CounterWork& work : first_works(counters)) {
    const std::string of_steps =
        fmt::format("in {} {} steps{}", work.steps, name(work.phase),
                    work.graph_batch > 0 ? " of graph " + graph_name(work.phase, work.graph_batch) : "");
    Table table{
        fmt::format("Measured {} (MB a step read from memory, of what is counted; shares in %)", of_steps),
        {"op", "samples", "us", "MB", "+-", "counted", "of it%", "GB/s", "SM", "tensor", "warps", "L2",
         "L2 hit"}};
    for (const CounterOp& op : work.ops) {
      const double read = op.measured[Counter::dram_read_bytes];
      const double of_it = op.counted_read_bytes > 0.0 ? read / op.counted_read_bytes
                                                       : std::numeric_limits<double>::quiet_NaN();
      table.add(
          op.op, samples_text(op), op.us, mb(read), mb(op.read_error_bytes), mb(op.counted_read_bytes),
          percent(of_it, 1.0), op.read_gbps(), percent(op.measured[Counter::sm_active], 1.0),
          percent(op.measured[Counter::tensor_active], 1.0), percent(op.measured[Counter::warps_active], 1.0),
          percent(op.measured[Counter::l2_throughput], 1.0), percent(op.measured[Counter::l2_hit], 1.0));
    }
    if (!is_narrow) {
      tables.push_back(std::move(table));
      continue;
    }
    tables.push_back(columns_of(
        table, fmt::format("Measured {} (MB a step read from memory, of what is counted)", of_steps), 1,
        kActivity));
    tables.push_back(
        columns_of(table, fmt::format("What was busy {} (%)", of_steps), kActivity, table.columns.size()));
  }
  return tables;
}

std::vector<std::string> rank_counter_sentences(const CounterAggregate& first, const RankCounterSums& others,
                                                size_t num_ranks) {
  std::vector<std::string> lines;
  if (num_ranks > 1 && first.windows > 0 && others.empty())
    lines.push_back(fmt::format(
        "hardware counters are those of the first of {} ranks: the others' were not read", num_ranks));
  for (const auto& [rank, counters] : others) {
    if (!counters.error.empty()) lines.push_back(counters.error);
  }
  return lines;
}

Table rank_counters_table(const CounterAggregate& first, const RankCounterSums& others) {
  Table table{
      "Hardware counters by rank (means of whole steps, in MB; of what is counted to be read, in %; NVLink: "
      "received, sent; busy in %)",
      {"rank", "windows", "steps", "read", "of it%", "GB/s", "written", "NVLink in", "out", "SM", "tensor"}};
  if (others.empty()) return table;
  add_row(table, 0, first);
  for (const auto& [rank, counters] : others)
    add_row(table, rank, counters);
  return table;
}

}  // namespace minfer
