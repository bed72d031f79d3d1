#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/owners.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// Attention over the paged cache with the memory it needs. Owned by the backend.
class AttentionOps {
 public:
  AttentionOps(int32_t num_sms, const StepLimits& limits);

  /// How the step's decoding sequences are divided over thread blocks; once a step, before its first
  /// attention(). Reads context lengths on the device, so that a captured graph serves any.
  void plan(Launch& launch, const ForwardBatch& batch);
  /// See AttentionArgs. q and out bf16 or f32; KV cache f32, f16, bf16 or fp8 (e4m3). Sequences with a
  /// context of 0 are padding: their rows of `out` become 0.
  void attention(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args);
};

}  // namespace minfer::cuda
