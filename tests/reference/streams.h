#pragma once

#include <span>

#include "tests/reference/ops.h"

/// Residual streams in double precision, as the formulas are written.
namespace minfer::reference {

/// See MixStreamsArgs: streams [tokens, count * cols] and x [tokens, cols] in place; coefs and weight as there, empty where it has none.
void mix_streams(MixStreamsArgs::Kind kind, Matrix& streams, const Matrix& routed, double scale,
                 std::span<const float> coefs, std::span<const float> weight, Matrix& x);

}  // namespace minfer::reference
