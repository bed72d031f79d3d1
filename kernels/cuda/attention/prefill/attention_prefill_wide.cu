#include "kernels/cuda/attention/prefill/attention_prefill.h"
#include "kernels/cuda/lanes/element.cuh"

namespace minfer::cuda {

void attention_prefill_wide(Launch& launch, const PrefillOptionParams& params, DType kv) {
  switch (kv) {
    case DType::bf16:
      return attention_prefill_wide<__nv_bfloat16>(launch, params);
    case DType::f16:
      return attention_prefill_wide<__half>(launch, params);
    case DType::f8_e4m3:
      return attention_prefill_wide<__nv_fp8_e4m3>(launch, params);
    default:
      unsupported("attention on tensor cores", "a KV cache of bf16, f16 or fp8_e4m3", name(kv));
  }
}

}  // namespace minfer::cuda
