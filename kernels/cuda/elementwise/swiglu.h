#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/tensor_view.h"

namespace minfer::cuda {

/// out = silu(gate) * up. gate_up: [tokens, 2 F], gate in the first F columns; out [tokens, F]. bf16 or f32
/// each.
void swiglu(Launch& launch, const Tensor& gate_up, const Tensor& out);
/// out[t, n] += bias[n]; out bf16 or f32.
void add_bias(Launch& launch, const float* bias, const Tensor& out);
/// A kernel that stores the op's stamp and nothing else: in front of kernels of libraries, which carry none.
void stamp_only(Launch& launch);

}  // namespace minfer::cuda
