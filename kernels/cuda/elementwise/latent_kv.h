#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// See LatentKvWriteArgs. q_out bf16 or f32; KV cache f32, f16, bf16 or fp8 (e4m3). A token with a negative slot is padding: nothing of it
/// reaches the cache.
void latent_kv_write(Launch& launch, const ForwardBatch& batch, const LatentKvWriteArgs& args);

}  // namespace minfer::cuda
