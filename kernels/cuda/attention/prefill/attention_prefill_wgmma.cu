#include "kernels/cuda/attention/prefill/attention_prefill.h"
#include "kernels/cuda/device/element.cuh"

namespace minfer::cuda {
namespace {

template <class Params>
void prefill_wgmma_by_type(Launch& launch, const Params& params, DType kv, int32_t head_size) {
  switch (kv) {
    case DType::bf16:
      return attention_prefill_wgmma<__nv_bfloat16>(launch, params, head_size);
    case DType::f16:
      return attention_prefill_wgmma<__half>(launch, params, head_size);
    default:
      unsupported("attention by warpgroups", "a KV cache of bf16 or f16", name(kv));
  }
}

}  // namespace

void attention_prefill_wgmma(Launch& launch, const PrefillParams& params, DType kv, int32_t head_size) {
  prefill_wgmma_by_type(launch, params, kv, head_size);
}

void attention_prefill_wgmma(Launch& launch, const PrefillOptionParams& params, DType kv, int32_t head_size) {
  prefill_wgmma_by_type(launch, params, kv, head_size);
}

}  // namespace minfer::cuda
