#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/fp8/fp8_stream_kernels.h"
#include "kernels/cuda/product/panel_product.h"

namespace minfer::cuda {

/// Whether it takes a product (rows and columns divide by eight, memory is aligned) and is the fastest: see is_worth_streaming().
bool is_streamable(const PanelArgs& args, int32_t num_sms);
/// bf16 weights, as they lie in a file, past tokens, on a device that has_wgmma(); see stream_product.cuh. With `up` its address is
/// above that of `weight`.
void stream_product(Launch& launch, const PanelArgs& args);

/// Whether it takes a product with a quantised weight (rows divide by four, of gate and up by 32, with up above gate; columns divide by 64;
/// memory is aligned) and is the fastest: see is_worth_tile_streaming().
bool is_tile_streamable(DType type, const PanelArgs& args);
/// Quantised weights (is_tiled()) past tokens, on a device that has_wgmma(); see tile_stream.cuh.
void tile_stream_product(Launch& launch, DType type, const PanelArgs& args);

/// Whether FP8 weights of these sizes, with x of FP8, are taken: columns and, of gate and up, rows that divide by 128.
bool is_fp8_streamable(int64_t rows, int64_t cols, bool gate_up);
/// FP8 weights past FP8 activations, on a device that has_wgmma(); see fp8_stream.cuh.
void fp8_stream_product(Launch& launch, const Fp8Product& product);

}  // namespace minfer::cuda
