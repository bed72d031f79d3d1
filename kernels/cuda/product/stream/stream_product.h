#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/fp8/fp8_stream_kernels.h"
#include "kernels/cuda/product/panel_product.h"
#include "kernels/tuning/product_plan.h"

namespace minfer::cuda {

/// Whether it takes a product: rows and columns that divide by eight, aligned memory.
bool can_stream(const PanelArgs& args);
/// Whether it does, and is the fastest: see is_worth_streaming().
bool is_streamable(const PanelArgs& args, int32_t num_sms);
/// bf16 weights, as they lie in a file, past tokens, on a device that has_wgmma(); see stream_product.cuh. With `up` its address is
/// above that of `weight`.
void stream_product(Launch& launch, const PanelArgs& args);
/// The same by another plan than stream_plan()'s: one that refusal() has nothing against.
void stream_product(Launch& launch, const PanelArgs& args, const ProductPlan& plan);

/// Whether it takes a product with a quantised weight: rows that divide by four (of gate and up by 32, up above gate), columns by 64,
/// aligned memory.
bool can_tile_stream(const PanelArgs& args);
/// Whether it does, and is the fastest: see is_worth_tile_streaming().
bool is_tile_streamable(DType type, const PanelArgs& args);
/// Quantised weights (is_tiled()) past tokens, on a device that has_wgmma(); see tile_stream.cuh.
void tile_stream_product(Launch& launch, DType type, const PanelArgs& args);
/// The same by another plan than tile_stream_plan()'s.
void tile_stream_product(Launch& launch, DType type, const PanelArgs& args, const ProductPlan& plan);

/// Whether FP8 weights of these sizes, with x of FP8, are taken: columns and, of gate and up, rows that divide by 128.
bool is_fp8_streamable(int64_t rows, int64_t cols, bool gate_up);
/// FP8 weights past FP8 activations, on a device that has_wgmma(); see fp8_stream.cuh.
void fp8_stream_product(Launch& launch, const Fp8Product& product);

}  // namespace minfer::cuda
