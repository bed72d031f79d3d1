#pragma once

#include <cstdint>
#include <span>

#include "kernels/comm/rank.h"
#include "kernels/op.h"
#include "kernels/stamps.h"
#include "profiling/record/device_idle.h"

namespace minfer {

/// Whether an op is between ranks: they exchange data, and wait for each other.
inline bool is_between_ranks(OpKind kind) {
  return kind == OpKind::all_reduce || kind == OpKind::all_gather || kind == OpKind::broadcast;
}

/// What a step took on one of several ranks.
struct RankStep {
  static constexpr int64_t kNotKnown = -1;  ///< in lines of older versions

  int64_t step = -1;
  int32_t rank = 0;
  int64_t begin_ns = 0;     ///< of its first op, by the clock of all host times
  int64_t end_ns = 0;       ///< of its last
  int64_t computed_ns = 0;  ///< in ops of its own
  int64_t exchange_ns = 0;  ///< in ops between ranks
  int64_t waited_ns = 0;    ///< of that until all ranks had come; 0 where that is not stamped
  /// What the rank's host worked for the step: launching, and after the device had finished it. Without ops that run on the host, and
  /// without waiting for the device or for the next order. The first rank's host also schedules, builds and answers.
  int64_t host_ns = kNotKnown;
  int64_t launch_ns = kNotKnown;  ///< of that from when the order to launch it had come until it was launched
  /// What the rank's device idled before the step and in it. Before: from its end of the last step to its begin of this one, if that
  /// goes on with sequences of before, so that there was work; otherwise nothing. In it: between ops that the host launched one by one
  /// (see IdleFinder); between ops of a graph it is not seen.
  int64_t idle_ns = kNotKnown;
};

/// What the ops of a step took, without what the host did and the device idled. `ops`: by OpId.
RankStep rank_step_of(int64_t step, Rank rank, const StepStamps& stamps, std::span<const OpInfo> ops);

/// Makes what steps took on one rank, given all its recorded steps in order. Used on the rank's thread.
class RankStepMaker {
 public:
  struct Host {
    int64_t launch_ns = 0;    ///< with the step's ops, if they ran within the call that launched them
    int64_t finish_ns = 0;    ///< what it worked for the step beside launching
    bool has_before = false;  ///< the step goes on with sequences of before
  };

  explicit RankStepMaker(Rank rank) : rank_(rank) {}
  RankStep make(int64_t step, const StepStamps& stamps, std::span<const OpInfo> ops, const Host& host);

 private:
  int64_t idle_within_ns(const StepStamps& stamps);

  Rank rank_;
  IdleFinder idle_;
  int64_t last_step_ = -1;
  int64_t last_end_ns_ = 0;
};

}  // namespace minfer
