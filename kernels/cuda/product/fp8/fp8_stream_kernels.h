#pragma once

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/device/fp8_activations.h"
#include "kernels/cuda/product/operands/product_args.h"

namespace minfer::cuda {

/// A product of FP8 weights and FP8 activations: `args` but x; gate and up become FP8 too.
struct Fp8Product {
  ProductArgs args;
  Fp8Activations x;
  Fp8Activations out = {};  ///< of gate and up
};

/// Tiles of kConsumerGroups * kTurns * 64 rows: 64, 128 or, of 128 tokens, 256; of gate and up 128 of each, to product.out. Each is a file
/// of its own: see kernels/cuda/instances.cmake.
template <int kConsumerGroups, int kTurns, bool kGateUp>
void launch_fp8_stream(Launch& launch, const Fp8Product& product, const StreamPlan& plan);

}  // namespace minfer::cuda
