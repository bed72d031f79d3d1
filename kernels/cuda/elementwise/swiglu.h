#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/tensor_view.h"

namespace minfer::cuda {

/// out = silu(gate) * up. gate_up: [tokens, 2 F], gate in the first F columns; out [tokens, F]. bf16 or f32
/// each.
void swiglu(Launch& launch, const Tensor& gate_up, const Tensor& out);

}  // namespace minfer::cuda
