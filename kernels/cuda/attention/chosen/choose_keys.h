#pragma once

#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// The choice of keys (ChooseKeysArgs) with the memory it needs. Owned by the backend.
class KeyChoiceOps {
 public:
  /// max_tokens and scored_keys of `limits` hold for all calls.
  explicit KeyChoiceOps(const StepLimits& limits);

  /// q bf16 or f32; KV cache f32, f16 or bf16. Tokens of padding choose nothing. A captured graph serves any lengths.
  void choose(Launch& launch, const ForwardBatch& batch, const ChooseKeysArgs& args) const;

 private:
  int32_t scored_keys_;
  int32_t queries_;      ///< whose scores are kept at a time
  DeviceBuffer scores_;  ///< [queries, scored_keys] f32
};

}  // namespace minfer::cuda
