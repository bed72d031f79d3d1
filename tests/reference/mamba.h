#pragma once

#include <span>
#include <vector>

#include "tests/reference/delta_net.h"

/// Mamba-2 in double precision, token after token, as the formulas are written.
namespace minfer::reference {

/// A layer's numbers of each head, and the bias of its convolution, [channels].
struct MambaHeads {
  std::span<const float> dt_bias, decay, skip, bias;
};

/// See DeltaConvArgs without norms, for a sequence's next tokens; weight [conv_size, channels].
Matrix mamba_conv(const Matrix& x, const DeltaNetShape& shape, std::span<const float> weight,
                  const MambaHeads& of, DeltaState& state);

/// See MambaScanArgs, also for a sequence's next tokens.
Matrix mamba_scan(const Matrix& xbc, const Matrix& dt, const Matrix& gate, const DeltaNetShape& shape,
                  const MambaHeads& of, DeltaState& state);

}  // namespace minfer::reference
