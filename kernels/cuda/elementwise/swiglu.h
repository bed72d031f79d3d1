#pragma once

#include "kernels/activation.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/tensor_view.h"

namespace minfer::cuda {

/// What is done to sums of gate and up.
struct Gating {
  GateActivation activation = GateActivation::silu;
  const float* gate_bias = nullptr;  ///< [F] or null
  const float* up_bias = nullptr;    ///< [F] or null
};

/// out = activation(gate + gate_bias, up + up_bias). gate_up: [tokens, 2 F], gate in the first F columns; out [tokens, F]. bf16 or f32
/// each.
void swiglu(Launch& launch, const Tensor& gate_up, const Tensor& out, const Gating& gating = {});

}  // namespace minfer::cuda
