#include "profiling/report/device/read_ahead.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace minfer {
namespace {

constexpr size_t kOpsOverRoofline = 8;  // that are over 100 %
constexpr size_t kMostOrders = 256;     // of a step's ops that are remembered; an engine has some ten

/// Bytes that a run of the op may read before its stamp; 0: none.
int64_t ahead_of(const auto& launches_of_op, std::span<const KernelLaunch> launches) {
  int64_t bytes = 0;
  for (const int32_t launch : launches_of_op) {
    if (launch >= 0 && launch < std::ssize(launches))
      bytes = std::max(bytes, launches[static_cast<size_t>(launch)].reads_ahead_bytes);
  }
  return bytes;
}

int64_t ahead_of(const OpAggregate& op, std::span<const KernelLaunch> launches) {
  std::vector<int32_t> of_op;
  for (const auto& [launch, runs] : op.launches)
    of_op.push_back(launch);
  return ahead_of(of_op, launches);
}

void add_share(PairShare& sum, const OpSummary& op, int64_t runs) {
  const double share = op.calls > 0 ? static_cast<double>(runs) / op.calls : 0.0;
  sum.us += share * op.us;
  sum.bytes += share * static_cast<double>(op.bytes);
  sum.floor_us += share * op.floor_us;
}

CountedPair::Share share_of(const CounterOp& op, int64_t runs) {
  const double share = op.calls > 0 ? static_cast<double>(runs) / op.calls : 0.0;
  return {share * op.us, share * op.measured[Counter::dram_read_bytes], share * op.counted_read_bytes};
}

std::string per_cent(double share) {
  return std::isfinite(share) ? fmt::format("{:.0f}", 100.0 * share) : "-";
}

std::string cause_of(const OpAggregate& op, const OverRoofline& over, std::span<const KernelLaunch> launches,
                     int64_t cache_bytes) {
  std::string cause;
  if (over.read_ahead) {
    cause = fmt::format("reads up to {} MiB ahead, in time that the op in front is charged for",
                        mib(ahead_of(op, launches)));
  }
  if (over.cache) {
    const double run_mib = op.bytes / static_cast<double>(op.calls) / (1 << 20);
    cause += fmt::format("{}the {} MiB of a run fit into the cache of {} MiB", cause.empty() ? "" : ", and ",
                         three_digits(run_mib), mib(cache_bytes));
  }
  if (!cause.empty()) return cause;
  return cache_bytes > 0 ? "cause not known" : "perhaps from a cache, whose size is not known";
}

}  // namespace

std::vector<OpNeighbours> neighbours_of(std::span<const OpInfo> ops,
                                        const std::vector<std::string>& running) {
  std::vector<OpNeighbours> found;
  std::map<std::pair<std::string_view, std::string_view>, size_t> places;
  const OpInfo* front = nullptr;
  for (const OpInfo& op : ops) {
    if (std::ranges::find(running, op.name) == running.end()) continue;
    if (front != nullptr) {
      const auto [place, is_new] = places.try_emplace({front->name, op.name}, found.size());
      if (is_new) found.push_back({front->name, op.name, 0});
      ++found[place->second].runs;
    }
    front = &op;
  }
  return found;
}

const std::vector<OpNeighbours>& ReadAheadSum::neighbours_in(const StepSummary& step) {
  const auto found = std::ranges::find_if(orders_, [&](const Order& order) {
    return std::ranges::equal(order.running, step.ops, {}, {}, &OpSummary::op);
  });
  if (found != orders_.end()) return found->neighbours;
  Order order;
  for (const OpSummary& op : step.ops)
    order.running.push_back(op.op);
  order.neighbours = neighbours_of(ops_, order.running);
  if (orders_.size() == kMostOrders) orders_.clear();
  return orders_.emplace_back(std::move(order)).neighbours;
}

void ReadAheadSum::add(const StepSummary& step, std::span<const KernelLaunch> launches) {
  const auto reads_ahead = [&](const OpSummary& op) { return ahead_of(op.launches, launches) > 0; };
  if (std::ranges::none_of(step.ops, reads_ahead)) return;
  const auto op_named = [&](const std::string& op) -> const OpSummary& {
    return *std::ranges::find(step.ops, op, &OpSummary::op);
  };
  for (const OpNeighbours& each : neighbours_in(step)) {
    const OpSummary& op = op_named(each.op);
    const int64_t ahead_bytes = ahead_of(op.launches, launches);
    if (ahead_bytes == 0) continue;
    ReadAheadPair& pair = by_phase_[static_cast<size_t>(step.phase())][{each.front, each.op}];
    pair.front = each.front;
    pair.op = each.op;
    pair.runs += each.runs;
    const int64_t run_bytes = op.bytes / std::max(op.calls, 1);
    pair.ahead_bytes = std::max(pair.ahead_bytes, std::min(ahead_bytes, run_bytes));
    add_share(pair.of_front, op_named(each.front), each.runs);
    add_share(pair.of_op, op, each.runs);
  }
}

std::vector<ReadAheadPair> ReadAheadSum::pairs(std::optional<StepPhase> phase) const {
  std::map<Names, ReadAheadPair> sums;
  for (size_t i = 0; i < by_phase_.size(); ++i) {
    if (phase && static_cast<size_t>(*phase) != i) continue;
    for (const auto& [names, pair] : by_phase_[i]) {
      const auto [place, is_new] = sums.try_emplace(names, pair);
      if (is_new) continue;
      ReadAheadPair& sum = place->second;
      sum.runs += pair.runs;
      sum.ahead_bytes = std::max(sum.ahead_bytes, pair.ahead_bytes);
      sum.of_front = sum.of_front + pair.of_front;
      sum.of_op = sum.of_op + pair.of_op;
    }
  }
  std::vector<ReadAheadPair> sorted;
  for (auto& [names, pair] : sums)
    sorted.push_back(std::move(pair));
  std::ranges::stable_sort(sorted, std::ranges::greater{},
                           [](const ReadAheadPair& pair) { return pair.both().us; });
  return sorted;
}

double CountedPair::Share::of_counted() const {
  return counted_read_bytes > 0.0 ? read_bytes / counted_read_bytes
                                  : std::numeric_limits<double>::quiet_NaN();
}

std::vector<CountedPair> counted_pairs(std::span<const OpInfo> ops, const CounterWork& work,
                                       std::span<const ReadAheadPair> pairs) {
  std::vector<std::string> running;
  for (const CounterOp& op : work.ops)
    running.push_back(op.op);
  const std::vector<OpNeighbours> order = neighbours_of(ops, running);
  std::vector<CountedPair> found;
  for (const ReadAheadPair& pair : pairs) {
    const auto each = std::ranges::find_if(
        order, [&](const OpNeighbours& other) { return other.front == pair.front && other.op == pair.op; });
    if (each == order.end()) continue;
    const auto op_named = [&](const std::string& op) {
      return std::ranges::find(work.ops, op, &CounterOp::op);
    };
    found.push_back({pair.front, pair.op, share_of(*op_named(pair.front), each->runs),
                     share_of(*op_named(pair.op), each->runs)});
  }
  return found;
}

std::optional<OverRoofline> over_roofline(const OpAggregate& op, std::span<const KernelLaunch> launches,
                                          int64_t cache_bytes) {
  if (op.bound == Bound::unknown || op.roofline() <= 1.0) return std::nullopt;
  return OverRoofline{.read_ahead = ahead_of(op, launches) > 0,
                      .cache = cache_bytes > 0 &&
                               op.bytes <= static_cast<double>(cache_bytes) * static_cast<double>(op.calls)};
}

Table read_ahead_table(std::span<const ReadAheadPair> pairs) {
  Table table{"Ops that read ahead (of one run)", {"op", "runs", "us", "MB", "GB/s", "roof%", "MiB ahead"}};
  for (const ReadAheadPair& pair : pairs) {
    const auto runs = static_cast<double>(pair.runs);
    const auto add_row = [&](std::string op, const PairShare& share, std::string ahead) {
      table.add(op, pair.runs, share.us / runs, mb(share.bytes / runs), share.gbps(),
                share.floor_us > 0.0 ? per_cent(share.roofline()) : "-", ahead);
    };
    add_row(pair.front, pair.of_front, "");
    add_row("+ " + pair.op, pair.of_op, mib(pair.ahead_bytes));
    add_row("= both", pair.both(), "");
  }
  return table;
}

Table counted_pairs_table(const CounterWork& work, std::span<const CountedPair> pairs) {
  Table table{
      fmt::format("Ops that read ahead, measured in {} {} steps{} (MB a step read from memory)", work.steps,
                  name(work.phase),
                  work.graph_batch > 0 ? " of graph " + graph_name(work.phase, work.graph_batch) : ""),
      {"op", "us", "MB", "counted", "of it%", "GB/s"}};
  for (const CountedPair& pair : pairs) {
    const auto add_row = [&](std::string op, const CountedPair::Share& share) {
      table.add(op, share.us, mb(share.read_bytes), mb(share.counted_read_bytes),
                per_cent(share.of_counted()), share.read_gbps());
    };
    add_row(pair.front, pair.of_front);
    add_row("+ " + pair.op, pair.of_op);
    add_row("= both", pair.both());
  }
  return table;
}

std::string over_roofline_sentence(std::span<const OpAggregate> ops, std::span<const KernelLaunch> launches,
                                   int64_t cache_bytes) {
  std::string text;
  size_t count = 0;
  for (const OpAggregate& op : ops) {
    const std::optional<OverRoofline> over = over_roofline(op, launches, cache_bytes);
    if (!over || ++count > kOpsOverRoofline) continue;
    text += fmt::format("{} {} ({:.0f} %): {}", text.empty() ? "" : ";", op.op, 100.0 * op.roofline(),
                        cause_of(op, *over, launches, cache_bytes));
  }
  if (count > kOpsOverRoofline) text += fmt::format("; {} more", count - kOpsOverRoofline);
  return text.empty() ? text : "over 100 % of the roofline:" + text;
}

}  // namespace minfer
