#pragma once

#include "profiling/findings/evidence.h"

namespace minfer {

/// Estimates the time of steps with more tokens from measured steps: by a line through the steps, if their sizes differ
/// enough. Else ops that read weights take as long, and longer only if the arithmetic roof says so (n tokens reach
/// n / (n + 5) of it), while all other ops grow with the tokens. An estimate either way.
class StepModel {
 public:
  /// `fit` and `phase` are those of the steps to estimate.
  StepModel(const Evidence& evidence, const LineFit& fit, StepPhase phase);

  /// The time per token in a step of `tokens`, over the time per token in a step of `now`: 0.5 if twice as many come in the same time.
  double token_cost(double now, double tokens) const;
  /// The mean time of a prompt token, over all computed prompt tokens; 0: there were none.
  static double prefill_token_us(const Evidence& evidence);

 private:
  double step_us(double now, double tokens) const;

  LineFit fit_;
  double shared_us_ = 0.0;      ///< of a step, for any number of tokens
  double growing_us_ = 0.0;     ///< of a step of the mean size, by its tokens
  double arithmetic_us_ = 0.0;  ///< least arithmetic time of ops that read weights in such a step
};

}  // namespace minfer
