#include "profiling/record/phase_split.h"

#include <algorithm>
#include <bit>

namespace minfer {
namespace {

constexpr float kNewestWeight = 1.0f / 8;

// The same step without its prefill tokens.
BatchShape decode_only(BatchShape shape) {
  shape.prefill_sequences = 0;
  shape.prefill_tokens = 0;
  shape.prefill_logit_rows = 0;
  shape.prefill_context = 0;
  shape.prefill_attended = 0;
  for (WindowShape& of_window : shape.windows)
    of_window.prefill_context = of_window.prefill_attended = 0;
  return shape;
}

}  // namespace

size_t PhaseCosts::group(int32_t tokens) {
  const auto width = static_cast<size_t>(std::bit_width(static_cast<uint32_t>(std::max(tokens, 1)) - 1));
  return std::min(width, kGroups - 1);
}

void PhaseCosts::observe(OpId op, int32_t decode_tokens, double us) {
  float& mean = mean_us_[static_cast<size_t>(op)][group(decode_tokens)];
  const auto newest = static_cast<float>(us);
  mean = mean == 0.0f ? newest : mean + (newest - mean) * kNewestWeight;
}

std::optional<double> PhaseCosts::decode_us(OpId op, int32_t decode_tokens) const {
  const float mean = mean_us_[static_cast<size_t>(op)][group(decode_tokens)];
  return mean == 0.0f ? std::nullopt : std::optional<double>(mean);
}

PhaseTokens phase_tokens(TokenScope scope, const BatchShape& shape) {
  switch (scope) {
    case TokenScope::decode:
      return {shape.decode_tokens, 0};
    case TokenScope::prefill:
      return {0, shape.prefill_tokens};
    case TokenScope::logits:
      return {shape.decode_logit_rows, shape.prefill_logit_rows};
    case TokenScope::all:
      break;
  }
  return {shape.decode_tokens, shape.prefill_tokens};
}

double decode_share_us(OpId op, const OpInfo& info, double us, const BatchShape& shape,
                       const Ceilings& ceilings, const PhaseCosts& costs, int32_t experts_read) {
  PhaseTokens tokens = phase_tokens(info.scope, shape);
  if (tokens.decode + tokens.prefill == 0) tokens = {shape.decode_tokens, shape.prefill_tokens};
  if (tokens.prefill == 0) return us;
  if (tokens.decode == 0) return 0.0;
  const UnitShares units = units_of(info);
  const KernelWork all = op_work(info, shape, experts_read);
  if (!ceilings.known() || ceilings.compute_bound(all.bytes(), all.flops, units))
    return us * tokens.decode / (tokens.decode + tokens.prefill);
  if (const std::optional<double> known = costs.decode_us(op, tokens.decode)) return std::min(us, *known);
  const KernelWork decode = op_work(info, decode_only(shape), experts_read);
  const double all_floor = ceilings.floor_us(all.bytes(), all.flops, units);
  if (all_floor <= 0.0) return 0.0;
  const double decode_floor = ceilings.floor_us(decode.bytes(), decode.flops, units);
  return us * std::clamp(decode_floor / all_floor, 0.0, 1.0);
}

StepPhase op_phase(TokenScope scope, const BatchShape& shape) {
  const PhaseTokens tokens = phase_tokens(scope, shape);
  if (tokens.prefill == 0) return StepPhase::decode;
  return tokens.decode == 0 ? StepPhase::prefill : StepPhase::mixed;
}

}  // namespace minfer
