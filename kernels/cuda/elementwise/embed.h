#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// See EmbedArgs: table in any device weight layout, out f32 or bf16.
void embed(Launch& launch, const EmbedArgs& args);
/// out[i] = x[rows[i]]; both f32 or both bf16.
void gather_rows(Launch& launch, const Tensor& x, const int32_t* rows, const Tensor& out);

}  // namespace minfer::cuda
