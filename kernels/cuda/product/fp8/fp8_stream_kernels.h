#pragma once

#include "kernels/cuda/device/fp8_activations.h"
#include "kernels/cuda/product/panel_product.h"
#include "kernels/cuda/product/stream/stream_plan.h"

namespace minfer::cuda {

/// A product of FP8 weights and FP8 activations: `args` but x; gate and up become FP8 too.
struct Fp8Product {
  PanelArgs args;
  Fp8Activations x;
  Fp8Activations out = {};  ///< of gate and up
};

// By rows of a tile.
void fp8_stream_64_rows(Launch& launch, const Fp8Product& product, const StreamPlan& plan);
void fp8_stream_128_rows(Launch& launch, const Fp8Product& product, const StreamPlan& plan);
/// Tiles of 128 tokens.
void fp8_stream_256_rows(Launch& launch, const Fp8Product& product, const StreamPlan& plan);
/// 128 rows of each, to product.out.
void fp8_stream_gate_up(Launch& launch, const Fp8Product& product, const StreamPlan& plan);

}  // namespace minfer::cuda
