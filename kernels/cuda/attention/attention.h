#pragma once

#include "kernels/cuda/attention/decode/attention_plan.h"
#include "kernels/cuda/attention/shared/attention_path.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// Attention over the paged cache with the memory it needs. Owned by the backend.
class AttentionOps {
 public:
  /// heads, attention_kinds and max_sequences of `limits` hold for all calls.
  AttentionOps(int32_t num_sms, const StepLimits& limits);

  /// Divides the step's decoding sequences over thread blocks. Call it once a step, before its first
  /// attention(). It reads context lengths on the device, so that a captured graph serves any lengths.
  void plan(Launch& launch, const ForwardBatch& batch);
  /// See AttentionArgs. q and out bf16 or f32; KV cache f32, f16, bf16 or fp8 (e4m3). Sequences with a context
  /// of 0 are padding: their rows of `out` become 0. The preceding launch may write qkv and, in the cache, the
  /// newest tokens of this step's decoding sequences, but nothing else that is read here: the decode path loads
  /// older tokens, contexts and block tables while that launch still runs.
  void attention(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args);

 private:
  void decode(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args);
  void latent(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args);
  void prefill(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args, AttentionPath path);

  int32_t heads_;
  int32_t max_sequences_;
  int32_t num_sms_;
  DeviceFacts device_;
  DecodePlans plans_;
  DeviceBuffer shares_;           ///< [plans, most shares of a plan] DecodeShare
  DeviceBuffer partials_;         ///< [2 shares] DecodePartial of the current layer
  DeviceBuffer counters_;         ///< [max_sequences, units of a sequence] i32, 0 between launches
  DeviceBuffer taken_tiles_;      ///< u32 of the prefill: tiles taken so far; 0 between launches
  DeviceBuffer latent_partials_;  ///< LatentParams::partials
  DeviceBuffer latent_maxima_;    ///< LatentParams::maxima
};

}  // namespace minfer::cuda
