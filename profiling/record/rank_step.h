#pragma once

#include <cstdint>
#include <span>

#include "kernels/comm/rank.h"
#include "kernels/op.h"
#include "kernels/stamps.h"

namespace minfer {

/// Whether an op is between ranks: they exchange data, and wait for each other.
inline bool is_between_ranks(OpKind kind) {
  return kind == OpKind::all_reduce || kind == OpKind::all_gather || kind == OpKind::broadcast;
}

/// What a step took on one of several ranks.
struct RankStep {
  int64_t step = -1;
  int32_t rank = 0;
  int64_t begin_ns = 0;     ///< of its first op, by the clock of all host times
  int64_t end_ns = 0;       ///< of its last
  int64_t computed_ns = 0;  ///< in ops of its own
  int64_t exchange_ns = 0;  ///< in ops between ranks
  int64_t waited_ns = 0;    ///< of that until all ranks had come; 0 where that is not stamped
};

/// Sums up `stamps`. `ops`: by OpId.
RankStep rank_step_of(int64_t step, Rank rank, const StepStamps& stamps, std::span<const OpInfo> ops);

}  // namespace minfer
