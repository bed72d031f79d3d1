#pragma once

#include <cstdint>

#include "kernels/cuda/attention/decode/attention_plan.h"
#include "kernels/cuda/attention/shared/attention_options.cuh"
#include "kernels/cuda/attention/shared/attention_params.h"
#include "kernels/cuda/launch/launch.h"

namespace minfer::cuda {

/// The most query heads of a unit: the short side of a product.
inline constexpr int32_t kUnitHeads = 8;

/// A block's result for its part of a unit: the state of the softmax for each query head.
template <int kHead>
struct DecodePartial {
  float value[kUnitHeads][kHead];
  float2 max_sum[kUnitHeads];
};
inline constexpr int64_t decode_partial_bytes(int32_t head_size) {
  return int64_t{kUnitHeads} * (head_size + 2) * static_cast<int64_t>(sizeof(float));
}

struct DecodeParams : AttentionParams {
  DecodeUnits per_kv_head;
  int32_t units;  ///< of a sequence
  const DecodeShare* shares;
  void* partials;     ///< [2 num_shares] DecodePartial
  int32_t* counters;  ///< [sequences, units], 0 between launches
};

struct DecodeOptionParams : DecodeParams {
  AttentionOptions options;
};

/// See attention_decode.cuh. `kv`: bf16, f16 or fp8. kHead: one of kTensorCoreHeads; instances.cmake compiles
/// all of them, rare ones with DecodeOptionParams alone.
template <int kHead, class Params>
void attention_decode(Launch& launch, const Params& params, DType kv, int32_t num_shares);

}  // namespace minfer::cuda
