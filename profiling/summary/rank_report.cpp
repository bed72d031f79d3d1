#include "profiling/summary/rank_report.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace minfer {
namespace {

std::string quantile_text(const Distribution& values, double share) {
  return values.count() > 0 ? three_digits(values.quantile(share)) : "-";
}

}  // namespace

void RankReportSum::set_header(const ProfileHeader& header) {
  const auto size =
      std::ranges::find(header.options, "tensor_parallel_size", &std::pair<std::string, std::string>::first);
  if (size != header.options.end())
    std::from_chars(size->second.data(), size->second.data() + size->second.size(), count_);
}

void RankReportSum::add(const RankStep& step) {
  std::vector<RankStep>& ranks = open_[step.step];
  // A run that counts its steps anew may have left a line of an earlier step of that number.
  std::erase_if(ranks, [&](const RankStep& other) {
    return other.rank == step.rank || other.end_ns < step.begin_ns || step.end_ns < other.begin_ns;
  });
  ranks.push_back(step);
  if (ranks.size() == static_cast<size_t>(count_)) {
    close(ranks);
    open_.erase(step.step);
  } else if (open_.size() > kMostOpen) {
    open_.erase(open_.begin());
  }
}

void RankReportSum::close(const std::vector<RankStep>& ranks) {
  const auto [least, most] = std::ranges::minmax(ranks, {}, &RankStep::computed_ns);
  skew_us_ += us_of(most.computed_ns - least.computed_ns);
  ++steps_;
  const int64_t begin_ns = std::ranges::min(ranks, {}, &RankStep::begin_ns).begin_ns;
  const int64_t end_ns = std::ranges::min(ranks, {}, &RankStep::end_ns).end_ns;
  for (const RankStep& rank : ranks) {
    RankUse& sum = sums_[rank.rank];
    sum.rank = rank.rank;
    ++sum.steps;
    sum.computed_us += us_of(rank.computed_ns);
    sum.exchange_us += us_of(rank.exchange_ns);
    sum.waited_us += us_of(rank.waited_ns);
    sum.begin_after_us += us_of(rank.begin_ns - begin_ns);
    sum.end_after_us += us_of(rank.end_ns - end_ns);
    if (rank.launch_ns != RankStep::kNotKnown) sum.launch_us += us_of(rank.launch_ns);
    if (rank.host_ns != RankStep::kNotKnown) sum.host_us.add(us_of(rank.host_ns));
    if (rank.idle_ns != RankStep::kNotKnown) sum.idle_us.add(us_of(rank.idle_ns));
  }
}

RankReport RankReportSum::result() const {
  RankReport report;
  for (const auto& [rank, sum] : sums_) {
    RankUse& mean = report.ranks.emplace_back(sum);
    for (double* us : {&mean.computed_us, &mean.exchange_us, &mean.waited_us, &mean.begin_after_us,
                       &mean.end_after_us, &mean.launch_us})
      *us /= static_cast<double>(mean.steps);
  }
  if (steps_ > 0) report.skew_us = skew_us_ / static_cast<double>(steps_);
  if (!report.ranks.empty()) {
    const RankUse& first = report.ranks.front();
    const double us = first.computed_us + first.exchange_us;
    report.exchange_share = us > 0.0 ? first.exchange_us / us : 0.0;
  }
  return report;
}

Table rank_table(const RankReport& report) {
  Table table{
      fmt::format(
          "Ranks (us a step; host: its work, idle: its device before the step and in it, wait: of "
          "exchange; begins, ends: after the first rank; skew {} us: what the slowest computed longer "
          "than the fastest; between them {} % of the ops' time, which nothing else runs beside)",
          three_digits(report.skew_us), percent(report.exchange_share, 1.0)),
      {"rank", "steps", "host p50", "host p99", "idle p50", "idle p99", "compute", "exchange", "wait",
       "begins", "ends"}};
  for (const RankUse& rank : report.ranks) {
    table.add(rank.rank, rank.steps, quantile_text(rank.host_us, 0.5), quantile_text(rank.host_us, 0.99),
              quantile_text(rank.idle_us, 0.5), quantile_text(rank.idle_us, 0.99), rank.computed_us,
              rank.exchange_us, rank.waited_us, rank.begin_after_us, rank.end_after_us);
  }
  return table;
}

Table traced_ranks_table(std::span<const RangeLine> first, std::span<const RangeLine> others) {
  Table table{
      "Traced kernels by rank (us a step: with a kernel running, with none, of that launched too late)",
      {"rank", "steps", "kernels", "unmatched", "missing", "busy", "idle", "host wait"}};
  if (others.empty()) return table;
  std::map<int32_t, RangeLine> sums;
  for (const std::span<const RangeLine> ranges : {first, others}) {
    for (const RangeLine& range : ranges) {
      RangeLine& sum = sums[range.rank];
      sum.steps += range.steps;
      sum.kernels += range.kernels;
      sum.unmatched += range.unmatched;
      sum.missing += range.missing;
      sum.busy_us += range.busy_us;
      sum.idle_us += range.idle_us;
      sum.host_wait_us += range.host_wait_us;
    }
  }
  for (const auto& [rank, sum] : sums) {
    const auto a_step = [steps = static_cast<double>(sum.steps)](double us) {
      return steps > 0 ? us / steps : 0.0;
    };
    table.add(rank, sum.steps, sum.kernels, sum.unmatched, sum.missing, a_step(sum.busy_us),
              a_step(sum.idle_us), a_step(sum.host_wait_us));
  }
  return table;
}

Table exchange_table(std::span<const OpAggregate> ops) {
  Table table{
      "Between ranks (of one call on the first rank; bus: bytes by link in the time that it did not wait)",
      {"op", "calls", "us", "waiting us", "link KB", "bus GB/s"}};
  for (const OpAggregate& op : ops) {
    if (op.link_bytes == 0.0 || op.calls == 0) continue;
    const auto calls = static_cast<double>(op.calls);
    const double moving_us = op.us - op.waited_us;
    const double gbps = moving_us > 0.0 ? op.link_bytes / moving_us * 1e-3 : 0.0;
    table.add(op.op, op.calls, op.us / calls, op.waited_us / calls, op.link_bytes / calls * 1e-3, gbps);
  }
  return table;
}

}  // namespace minfer
