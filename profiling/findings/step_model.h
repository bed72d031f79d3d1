#pragma once

#include "profiling/findings/evidence.h"

namespace minfer {

/// What steps would take if they computed more tokens, from what they took: a line through the steps that were, where their sizes
/// differ enough; else ops that read weights take as long, and longer only where the arithmetic roof says so (of which n tokens
/// reach n / (n + 5)), while all others grow with the tokens. An estimate either way.
class StepModel {
 public:
  /// `fit` and `phase`: of the steps that are asked about.
  StepModel(const Evidence& evidence, const LineFit& fit, StepPhase phase);

  /// Time of a token in a step of `tokens`, over that in one of `now`: 0.5 where twice as many come in the same time.
  double token_cost(double now, double tokens) const;
  /// Time of a prompt's token, of all that was computed of prompts; 0: none was.
  static double prefill_token_us(const Evidence& evidence);

 private:
  double step_us(double now, double tokens) const;

  LineFit fit_;
  double shared_us_ = 0.0;      ///< of a step, whatever its tokens
  double growing_us_ = 0.0;     ///< of a step of the mean size, by its tokens
  double arithmetic_us_ = 0.0;  ///< what the arithmetic roof allows ops that read weights in such a step
};

}  // namespace minfer
