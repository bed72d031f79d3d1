#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// out[t] = table[token_ids[t]]: table in any device weight layout, out f32 or bf16 [num_tokens, hidden].
void embed(Launch& launch, const int32_t* token_ids, const Weight& table, const Tensor& out);
/// out[i] = x[rows[i]]; both f32 or both bf16.
void gather_rows(Launch& launch, const Tensor& x, const int32_t* rows, const Tensor& out);

}  // namespace minfer::cuda
