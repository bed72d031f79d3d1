#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/launches.h"
#include "profiling/report/device/counters_report.h"
#include "profiling/summary/aggregate.h"
#include "profiling/text/table.h"

namespace minfer {

/// An op that runs right behind another.
struct OpNeighbours {
  std::string front;
  std::string op;
  int64_t runs = 0;  ///< in a step
};
/// The pairs in a step that runs the ops named in `running`, each once. `ops`: every op in the order of a step (ProfileHeader::ops).
std::vector<OpNeighbours> neighbours_of(std::span<const OpInfo> ops, const std::vector<std::string>& running);

/// The time and work of one op of a pair, or of both ops.
struct PairShare {
  double us = 0.0;
  double bytes = 0.0;
  double floor_us = 0.0;  ///< by the roofline; 0: ceilings unknown

  double gbps() const { return us > 0.0 ? bytes / us * 1e-3 : 0.0; }
  double roofline() const { return us > 0.0 ? floor_us / us : 0.0; }
  PairShare operator+(const PairShare& other) const {
    return {us + other.us, bytes + other.bytes, floor_us + other.floor_us};
  }
};

/// An op whose kernels read weights or cached keys before their stamp, and the op in front of it. The time of these reads counts for
/// the op in front, so only the sum of the two is exact.
struct ReadAheadPair {
  std::string front;
  std::string op;
  int64_t runs = 0;         ///< of the op behind `front`, over all steps
  int64_t ahead_bytes = 0;  ///< upper bound of a run
  PairShare of_front;
  PairShare of_op;

  PairShare both() const { return of_front + of_op; }
};
/// Sums up pairs as steps come. One thread at a time.
class ReadAheadSum {
 public:
  /// `ops`: see neighbours_of().
  explicit ReadAheadSum(std::vector<OpInfo> ops = {}) : ops_(std::move(ops)) {}
  /// `launches`: the launches that the step may name.
  void add(const StepSummary& step, std::span<const KernelLaunch> launches);
  /// The pairs in the steps of `phase`, or in all steps; most time first.
  std::vector<ReadAheadPair> pairs(std::optional<StepPhase> phase = std::nullopt) const;

 private:
  using Names = std::pair<std::string, std::string>;
  struct Order {
    std::vector<std::string> running;
    std::vector<OpNeighbours> neighbours;
  };
  const std::vector<OpNeighbours>& neighbours_in(const StepSummary& step);

  std::vector<OpInfo> ops_;
  std::vector<Order> orders_;                               ///< by the ops that run
  std::array<std::map<Names, ReadAheadPair>, 3> by_phase_;  ///< by StepPhase
};

/// A pair in windows of hardware counters, as the mean of a step.
struct CountedPair {
  struct Share {
    double us = 0.0;
    double read_bytes = 0.0;  ///< measured; NaN: not sampled
    double counted_read_bytes = 0.0;
    double read_gbps() const { return us > 0.0 ? read_bytes / us * 1e-3 : 0.0; }
    double of_counted() const;  ///< NaN: not known
  };
  std::string front;
  std::string op;
  Share of_front;
  Share of_op;

  Share both() const {
    return {of_front.us + of_op.us, of_front.read_bytes + of_op.read_bytes,
            of_front.counted_read_bytes + of_op.counted_read_bytes};
  }
};
/// The members of `pairs` that occur in steps of this work.
std::vector<CountedPair> counted_pairs(std::span<const OpInfo> ops, const CounterWork& work,
                                       std::span<const ReadAheadPair> pairs);

/// The reasons why an op seems faster than the roofline's memory.
struct OverRoofline {
  bool read_ahead = false;  ///< the op read before its stamp
  bool cache = false;       ///< the bytes of a run fit into the cache
};
/// The reasons for an op over 100 % of its roofline; no value: the op is not over it. `cache_bytes` 0: not known.
std::optional<OverRoofline> over_roofline(const OpAggregate& op, std::span<const KernelLaunch> launches,
                                          int64_t cache_bytes);

/// Three rows for each pair: the op in front, the op, both.
Table read_ahead_table(std::span<const ReadAheadPair> pairs);
Table counted_pairs_table(const CounterWork& work, std::span<const CountedPair> pairs);
/// Explains the tables.
inline constexpr std::string_view kReadAheadSentence =
    "ops that read ahead request bytes before their stamp, while the op before them ends: that moves time "
    "from one to the other, and only the sum of both is exact";
/// A sentence about the ops over 100 % and their causes; empty: there are none.
std::string over_roofline_sentence(std::span<const OpAggregate> ops, std::span<const KernelLaunch> launches,
                                   int64_t cache_bytes);

}  // namespace minfer
