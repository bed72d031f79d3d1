#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/owners.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// Products with weights, dense and of experts, with the memory they need. Owned by the backend.
class LinearOps {
 public:
  LinearOps(int32_t num_sms, const StepLimits& limits);

  /// See LinearArgs. x bf16, or f32 with f32 weights; out f32 or bf16. Weights that lie one behind the other
  /// in memory and have one type are multiplied as one matrix.
  void linear(Launch& launch, const LinearArgs& args);
  /// See GateUpArgs.
  void gate_up_swiglu(Launch& launch, const GateUpArgs& args);
  void moe_gate_up_swiglu(Launch& launch, const MoeGateUpArgs& args);
  void moe_down(Launch& launch, const MoeDownArgs& args);
};

}  // namespace minfer::cuda
