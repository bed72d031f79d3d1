#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/op.h"
#include "kernels/work.h"
#include "profiling/record/ceilings.h"
#include "profiling/record/step_record.h"

namespace minfer {

/// The rule that divides an op's time between prefill and decode; it is in the header of every profile.
inline constexpr std::string_view kPhaseRule =
    "An op of one kind of token counts wholly for its phase. A shared op of a mixed step is split by tokens "
    "(by logit rows, for ops on logits) when compute-bound. When memory-bound, decode is charged what the op "
    "took in pure decode steps of about as many tokens (running mean, by power of two), or, before any was "
    "seen, what the roofline says of the decode tokens alone at the share of the roofline that the op "
    "reached; the rest is prefill. Without measured ceilings: by tokens.";

/// The time of each op in pure decode steps: a running mean (weight 1/8 for the newest) by op and token count,
/// with counts grouped as 1, 2, 3-4, 5-8, ... A memory-bound op takes nearly the same time within a group.
class PhaseCosts {
 public:
  explicit PhaseCosts(size_t num_ops) : mean_us_(num_ops) {}
  void observe(OpId op, int32_t decode_tokens, double us);
  /// No value if no pure decode step of that group was seen.
  std::optional<double> decode_us(OpId op, int32_t decode_tokens) const;

 private:
  static constexpr size_t kGroups = 16;
  static size_t group(int32_t tokens);
  std::vector<std::array<float, kGroups>> mean_us_;  ///< 0: not seen
};

/// The tokens of each phase that an op works on; for ops on logits, the logit rows.
struct PhaseTokens {
  int32_t decode = 0;
  int32_t prefill = 0;
};
PhaseTokens phase_tokens(TokenScope scope, const BatchShape& shape);

/// The part of `us` that kPhaseRule charges to decode, between 0 and `us`. `experts_read`: see op_work().
double decode_share_us(OpId op, const OpInfo& info, double us, const BatchShape& shape,
                       const Ceilings& ceilings, const PhaseCosts& costs, int32_t experts_read = -1);

/// The phase of the tokens that ops of `scope` work on in a step; mixed if there are tokens of both phases.
StepPhase op_phase(TokenScope scope, const BatchShape& shape);

}  // namespace minfer
