#pragma once

#include <span>
#include <vector>

#include "tests/reference/ops.h"

/// Gated delta nets in double precision, token after token, as the formulas are written.
namespace minfer::reference {

/// The state of one sequence. Empty before its first token.
struct DeltaState {
  std::vector<double> conv;   ///< [conv_size - 1, channels]
  std::vector<double> delta;  ///< [value_heads, key_size, value_size]
};

/// See DeltaConvArgs, for a sequence's next tokens; weight [conv_size, channels].
Matrix delta_conv(const Matrix& x, const DeltaNetShape& shape, std::span<const float> weight,
                  DeltaState& state);

/// See DeltaRuleArgs, also for a sequence's next tokens. `gates`: where rows decay, their alphas stand behind the betas.
Matrix delta_rule(const Matrix& qkv, const Matrix& gates, const DeltaNetShape& shape,
                  std::span<const float> dt_bias, std::span<const float> decay, DeltaState& state);

/// See HeadGateArgs; gate [rows, columns of x]; `norm` empty: no norm.
Matrix head_gate(const Matrix& x, const Matrix& gate, int64_t heads, HeadGateArgs::Function function,
                 std::span<const float> norm, double eps);

}  // namespace minfer::reference
