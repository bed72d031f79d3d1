#include "kernels/cuda/attention/prefill/attention_prefill.h"
#include "kernels/cuda/lanes/element.cuh"

namespace minfer::cuda {
namespace {

template <class Params>
void prefill_by_type(Launch& launch, const Params& params, DType kv, int32_t head_size) {
  switch (kv) {
    case DType::bf16:
      return attention_prefill<__nv_bfloat16>(launch, params, head_size);
    case DType::f16:
      return attention_prefill<__half>(launch, params, head_size);
    case DType::f8_e4m3:
      return attention_prefill<__nv_fp8_e4m3>(launch, params, head_size);
    default:
      unsupported("attention on tensor cores", "a KV cache of bf16, f16 or fp8_e4m3", name(kv));
  }
}

}  // namespace

void attention_prefill(Launch& launch, const PrefillParams& params, DType kv, int32_t head_size) {
  prefill_by_type(launch, params, kv, head_size);
}

void attention_prefill(Launch& launch, const PrefillOptionParams& params, DType kv, int32_t head_size) {
  prefill_by_type(launch, params, kv, head_size);
}

}  // namespace minfer::cuda
