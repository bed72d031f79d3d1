#pragma once

#include <cstdint>
#include <span>

#include "kernels/comm/rank.h"
#include "kernels/op.h"
#include "kernels/stamps.h"
#include "profiling/record/device_idle.h"

namespace minfer {

/// True if ranks exchange data in the op, and so wait for each other.
inline bool is_between_ranks(OpKind kind) {
  return kind == OpKind::all_reduce || kind == OpKind::all_gather || kind == OpKind::broadcast;
}

/// The times of a step on one of several ranks.
struct RankStep {
  static constexpr int64_t kNotKnown = -1;  ///< in lines of older versions

  int64_t step = -1;
  int32_t rank = 0;
  int64_t begin_ns = 0;     ///< of the first op, on the clock of all host times
  int64_t end_ns = 0;       ///< of the last op
  int64_t computed_ns = 0;  ///< in the rank's own ops
  int64_t exchange_ns = 0;  ///< in ops between ranks
  int64_t waited_ns = 0;    ///< part of exchange_ns, until all ranks had come; 0 if not stamped
  /// The time that the rank's host worked for the step: to launch it, and after the device had finished it. Excludes ops that run on the
  /// host, and waits for the device or for the next order. The first rank's host also schedules, builds and answers.
  int64_t host_ns = kNotKnown;
  int64_t launch_ns = kNotKnown;  ///< part of host_ns, from the order to launch until the launch was done
  /// The idle time of the rank's device before and in the step. Before: from the device's end of the last step to its begin of this step,
  /// if this step goes on with earlier sequences, so that there was work; otherwise nothing. In it: between ops that the host launched
  /// one by one (see IdleFinder); idle time between ops of a graph is not seen.
  int64_t idle_ns = kNotKnown;
};

/// Only the times of a step's ops, without the host's work and the device's idle time. `ops`: by OpId.
RankStep rank_step_of(int64_t step, Rank rank, const StepStamps& stamps, std::span<const OpInfo> ops);

/// Makes the RankSteps of one rank from all its recorded steps, in order. Used on the rank's thread.
class RankStepMaker {
 public:
  struct Host {
    int64_t launch_ns = 0;    ///< includes the step's ops, if they ran within the call that launched them
    int64_t finish_ns = 0;    ///< the host's other work for the step
    bool has_before = false;  ///< the step goes on with earlier sequences
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

/// Receives the stamps of recorded steps from the ranks that are other threads of this process. Each rank calls it on its own
/// thread, in the order of its steps, before or after the first rank has recorded the step. The sink copies what it needs and
/// never blocks.
class RankStampSink {
 public:
  virtual ~RankStampSink() = default;
  virtual void consume_stamps(int32_t rank, int64_t step, const StepStamps& stamps) noexcept = 0;
};

}  // namespace minfer
