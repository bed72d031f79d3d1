#include "profiling/report/device/rank_counters.h"

#include <fmt/format.h>

namespace minfer {
namespace {

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
