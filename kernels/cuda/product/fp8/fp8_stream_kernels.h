#pragma once

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/device/fp8_activations.h"
#include "kernels/cuda/product/operands/product_args.h"

namespace minfer::cuda {

/// A product of FP8 weights and FP8 activations: `args` without x. The result of gate and up is FP8 too.
struct Fp8Product {
  ProductArgs args;
  Fp8Activations x;
  Fp8Activations out = {};  ///< for gate and up
};

/// Tiles of kConsumerGroups * kTurns * 64 rows: 64, 128 or, with 128 tokens, 256. For gate and up they have 128 rows
/// of each, and the result goes to product.out. Each instance is a file of its own: see kernels/cuda/instances.cmake.
template <int kConsumerGroups, int kTurns, bool kGateUp>
void launch_fp8_stream(Launch& launch, const Fp8Product& product, const StreamPlan& plan);

}  // namespace minfer::cuda
