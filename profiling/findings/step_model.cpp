#include "profiling/findings/step_model.h"

#include <algorithm>

namespace minfer {
namespace {

/// Tokens of a step that reaches half of the arithmetic roof.
constexpr double kHalfOfRoof = 5.0;

}  // namespace

StepModel::StepModel(const Evidence& evidence, const LineFit& fit, StepPhase phase) : fit_(fit) {
  const PhaseEvidence& steps = evidence.steps.of(phase);
  if (steps.steps == 0) return;
  const Ceilings& ceilings = evidence.header().ceilings;
  double weights_us = 0.0, others_us = 0.0;
  for (const OpEvidence& op : evidence.ops()) {
    if (op.phase != phase) continue;
    (is_product(op.kind) ? weights_us : others_us) += op.us;
    if (is_product(op.kind) && ceilings.gflops > 0.0)
      arithmetic_us_ += op.flops / ceilings.gflops_of(op.units) * 1e-3;
  }
  const auto count = static_cast<double>(steps.steps);
  shared_us_ = (steps.exposed_us + weights_us) / count;
  growing_us_ = others_us / count;
  arithmetic_us_ /= count;
}

double StepModel::step_us(double now, double tokens) const {
  if (fit_.is_known()) return fit_.fixed() + fit_.each() * tokens;
  const double times = tokens / now;
  const double reached = tokens / (tokens + kHalfOfRoof);
  return std::max(shared_us_, arithmetic_us_ / reached * times) + growing_us_ * times;
}

double StepModel::token_cost(double now, double tokens) const {
  const double us_now = fit_.is_known() ? step_us(now, now) : shared_us_ + growing_us_;
  return us_now > 0.0 && tokens > now ? step_us(now, tokens) / us_now * now / tokens : 1.0;
}

double StepModel::prefill_token_us(const Evidence& evidence) {
  const int64_t tokens = evidence.steps.prefill_tokens();
  if (tokens == 0) return 0.0;
  // With the host's share of the steps, which a token that is not computed does not need either.
  const StepEvidence& steps = evidence.steps;
  const double ops_us = steps.ops_us();
  return ops_us > 0.0
             ? steps.prefill_us / ops_us * (ops_us + steps.exposed_us()) / static_cast<double>(tokens)
             : 0.0;
}

}  // namespace minfer
