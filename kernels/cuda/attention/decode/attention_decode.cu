#include "kernels/cuda/attention/decode/attention_decode.h"
#include "kernels/cuda/device/element.cuh"

namespace minfer::cuda {
namespace {

template <class Params>
void decode_by_type(Launch& launch, const Params& params, DType kv, int32_t head_size, int32_t num_shares) {
  switch (kv) {
    case DType::bf16:
      return attention_decode<__nv_bfloat16>(launch, params, head_size, num_shares);
    case DType::f16:
      return attention_decode<__half>(launch, params, head_size, num_shares);
    case DType::f8_e4m3:
      return attention_decode<__nv_fp8_e4m3>(launch, params, head_size, num_shares);
    default:
      unsupported("attention on tensor cores", "a KV cache of bf16, f16 or fp8_e4m3", name(kv));
  }
}

}  // namespace

void attention_decode(Launch& launch, const DecodeParams& params, DType kv, int32_t head_size,
                      int32_t num_shares) {
  decode_by_type(launch, params, kv, head_size, num_shares);
}

void attention_decode(Launch& launch, const DecodeOptionParams& params, DType kv, int32_t head_size,
                      int32_t num_shares) {
  decode_by_type(launch, params, kv, head_size, num_shares);
}

}  // namespace minfer::cuda
