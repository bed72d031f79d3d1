#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "profiling/findings/line_fit.h"
#include "profiling/report/summary.h"

namespace minfer {

/// Steps with draft tokens, of one phase and of mean contexts within a factor of two. Of mixed steps it is the part of decoding.
struct DraftUse {
  StepPhase phase = StepPhase::decode;
  int64_t from_context = 0;  ///< to less than twice as much; 0: not known
  int64_t steps = 0, sequences = 0, checked = 0, proposed = 0, accepted = 0;
  double us = 0.0;
  double draft_us = 0.0;     ///< of that, finding drafts; the rest checks them
  double without_us = 0.0;   ///< what the tokens would have taken without drafts
  bool is_measured = false;  ///< by steps that had none; else by a model of these steps

  int64_t tokens() const { return sequences + accepted; }
  double lost_us() const { return us - without_us; }
  /// The same if checking drafts took nothing, and if all checking took as long for each token.
  double lost_at_least_us() const { return us - times(tokens(), sequences) * (us - draft_us); }
  double lost_at_most_us() const { return us - times(tokens(), checked) * (us - draft_us); }
  void operator+=(const DraftUse& other);

 private:
  static double times(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }
};

/// What drafts took and gave, by context and phase, held against the time of steps without: of the same phase and about the same context,
/// or at least of any context. Where there were none that is a model of each step: an op takes as much less as the roofline says of
/// fewer tokens, and a device does not wait for the host, which then launches ahead.
class DraftEvidence {
 public:
  explicit DraftEvidence(const Ceilings& ceilings) : ceilings_(ceilings) {}
  void add(const StepSummary& step);
  /// Steps that only decode first, shorter contexts first.
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
