#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "profiling/findings/line_fit.h"
#include "profiling/summary/summary.h"

namespace minfer {

/// Steps with draft tokens, with one phase and mean contexts within a factor of two. For mixed steps, only the decoding part.
struct DraftUse {
  StepPhase phase = StepPhase::decode;
  int64_t from_context = 0;  ///< up to less than twice this; 0: not known
  int64_t steps = 0, sequences = 0, checked = 0, proposed = 0, accepted = 0;
  double us = 0.0;
  double draft_us = 0.0;     ///< part of `us` that found drafts; the rest checked them
  double without_us = 0.0;   ///< the time of the same tokens without drafts
  bool is_measured = false;  ///< by steps without drafts; else by a model of these steps

  int64_t tokens() const { return sequences + accepted; }
  double lost_us() const { return us - without_us; }
  /// lost_us() if checking drafts took no time, and if checking took equally long for each token.
  double lost_at_least_us() const { return us - times(tokens(), sequences) * (us - draft_us); }
  double lost_at_most_us() const { return us - times(tokens(), checked) * (us - draft_us); }
  void operator+=(const DraftUse& other);

 private:
  static double times(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }
};

/// The cost and gain of drafts, by context and phase, compared with the time of steps without drafts: with the same phase and about the
/// same context, or else with any context. Without such steps, a model of each step takes their place: an op takes less time in the
/// ratio that the roofline gives for fewer tokens, and a device does not wait for the host, which then launches ahead.
class DraftEvidence {
 public:
  explicit DraftEvidence(const Ceilings& ceilings = {}) : ceilings_(ceilings) {}
  void add(const StepSummary& step);
  /// Steps that only decode come first, then shorter contexts.
  std::vector<DraftUse> uses() const;

 private:
  struct Cell {
    DraftUse drafted;  ///< without_us: by the model
    LineFit plain;     ///< time by sequences
  };
  double plain_us(const StepSummary& step) const;

  Ceilings ceilings_;
  std::map<std::pair<StepPhase, int>, Cell> cells_;  ///< by the bits of the mean context
  std::map<StepPhase, LineFit> plain_;
};

}  // namespace minfer
