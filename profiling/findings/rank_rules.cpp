// Rules about time that several ranks lose to each other. They rest on lines of minfer.rank/1, for steps with a line from every rank.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "profiling/findings/rules.h"

namespace minfer {
namespace {

constexpr double kExposed = 0.1;  // of the steps' time on the devices, from which on moving bytes is reported
constexpr double kHideable = 0.5;  // of it, at the most: what computes beside it has less bandwidth

/// The mean over all ranks but one.
template <class Value>
double mean_of_others(const RankReport& report, const RankUse& one, const Value& value) {
  double sum = 0.0;
  for (const RankUse& rank : report.ranks)
    sum += rank.rank == one.rank ? 0.0 : value(rank);
  return sum / static_cast<double>(report.ranks.size() - 1);
}

double ops_us(const RankReport& report) {
  double us = 0.0;
  for (const RankUse& rank : report.ranks)
    us += rank.computed_us + rank.exchange_us;
  return us / static_cast<double>(report.ranks.size());
}

/// The others' mean wait in a step minus the rank's own wait, in microseconds.
double waited_for_us(const RankReport& report, const RankUse& rank) {
  const auto waited = [](const RankUse& each) { return each.waited_us; };
  return mean_of_others(report, rank, waited) - rank.waited_us;
}

/// Why they wait for it.
struct SlowRankCause {
  std::string evidence;
  std::string_view advice;
};

SlowRankCause cause_of(const RankReport& report, const RankUse& rank, double waited_us) {
  const auto moved_us = [](const RankUse& each) { return each.exchange_us - each.waited_us; };
  const double computes_longer_us =
      rank.computed_us - mean_of_others(report, rank, [](const RankUse& each) { return each.computed_us; });
  const double moves_longer_us = moved_us(rank) - mean_of_others(report, rank, moved_us);
  if (computes_longer_us >= 0.5 * waited_us) {
    return {fmt::format("it computes {:.0f} us a step, they {:.0f} us", rank.computed_us,
                        rank.computed_us - computes_longer_us),
            "look at its device: clocks, power and temperature (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE), "
            "other programs on it; on the CPU, look at its threads and their cores"};
  }
  if (moves_longer_us >= 0.5 * waited_us) {
    return {fmt::format("it computes no longer, but spends {:.0f} us a step in ops between ranks without "
                        "waiting, they {:.0f} us",
                        moved_us(rank), moved_us(rank) - moves_longer_us),
            "look at its link (nvidia-smi topo -m, nvlink -s); on the CPU, its threads wait for cores: use "
            "fewer --threads and run no other work beside it"};
  }
  return {fmt::format("it computes no longer, but begins {:.0f} us later (they {:.0f} us), and its host "
                      "takes {:.0f} us to launch",
                      rank.begin_after_us,
                      mean_of_others(report, rank, [](const RankUse& each) { return each.begin_after_us; }),
                      rank.launch_us),
          "give its host's thread a core of its own near its device, and run no other work beside it "
          "(taskset, numactl)"};
}

void slow_rank(const Evidence& evidence, std::vector<Finding>& findings) {
  const RankReport report = evidence.ranks();
  if (report.ranks.size() < 2 || ops_us(report) <= 0.0) return;
  const auto slowest = std::ranges::max_element(
      report.ranks, {}, [&](const RankUse& rank) { return waited_for_us(report, rank); });
  const double waited_us = waited_for_us(report, *slowest);
  if (waited_us <= 0.0) return;
  const double us = evidence.steps.ops_us() * std::min(1.0, waited_us / ops_us(report));
  const SlowRankCause cause = cause_of(report, *slowest, waited_us);
  findings.push_back(
      {.evidence = fmt::format("the other ranks wait {:.0f} us a step longer for rank {} than it waits for "
                               "them, {:.0f} % of the steps' time on the devices: {}",
                               waited_us, slowest->rank, 100.0 * waited_us / ops_us(report), cause.evidence),
       .stake_us = us,
       .gain = us / evidence.steps.wall_us,
       .estimated = false,
       .advice = std::string(cause.advice)});
}

void exposed_communication(const Evidence& evidence, std::vector<Finding>& findings) {
  const RankReport report = evidence.ranks();
  if (report.ranks.size() < 2 || ops_us(report) <= 0.0) return;
  double moved_us = 0.0;
  double waited_us = 0.0;
  for (const RankUse& rank : report.ranks) {
    moved_us += std::max(0.0, rank.exchange_us - rank.waited_us) / static_cast<double>(report.ranks.size());
    waited_us += rank.waited_us / static_cast<double>(report.ranks.size());
  }
  const double share = moved_us / ops_us(report);
  if (share < kExposed) return;
  const double us = evidence.steps.ops_us() * share;
  findings.push_back(
      {.evidence = fmt::format(
           "moving bytes between {} ranks takes {:.0f} us a step, {:.0f} % of the steps' time on the "
           "devices, in which they compute nothing; this excludes {:.0f} us of waiting for each other",
           report.ranks.size(), moved_us, 100.0 * share, waited_us),
       .stake_us = us,
       .gain = kHideable * us / evidence.steps.wall_us,
       .advice = "use fewer ranks (--tensor-parallel-size) if the model fits, a faster link or larger "
                 "batches; the table Between ranks has GB/s. Hiding half of it behind compute would give the "
                 "gain, but minfer does not do that yet"});
}

}  // namespace

std::span<const Rule> rank_rules() {
  static constexpr std::array kRules{
      Rule{"slow rank", FindingGroup::system, slow_rank},
      Rule{"exposed communication", FindingGroup::system, exposed_communication},
  };
  return kRules;
}

}  // namespace minfer
