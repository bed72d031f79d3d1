#pragma once

#include <cstdint>

#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// Device memory that records the experts that tokens choose.
struct ChosenExperts {
  uint32_t* bits =
      nullptr;  ///< [ceil(experts / 32)], expert e: bit e % 32 of word e / 32, set if chosen; null: nowhere
  const int32_t* num_tokens = nullptr;  ///< tokens behind these are padding; their choices do not count
};

/// See MoeRouteArgs. logits f32 or bf16, at most kMaxExperts columns.
void moe_route(Launch& launch, const MoeRouteArgs& args, const ChosenExperts& chosen = {});

}  // namespace minfer::cuda
