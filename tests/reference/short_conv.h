#pragma once

#include <span>
#include <vector>

#include "tests/reference/ops.h"

namespace minfer::reference {

/// See ShortConvArgs, in double precision, for a sequence's next tokens; weight [conv_size, channels]; `bias` empty: none. `state`: the
/// convolution's inputs for all tokens so far, empty before the first.
Matrix short_conv(const Matrix& x, std::span<const float> weight, std::span<const float> bias,
                  std::vector<double>& state);

}  // namespace minfer::reference
