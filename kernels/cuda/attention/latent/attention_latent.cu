#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/attention/latent/attention_latent.h"

namespace minfer::cuda {

void attention_latent(Launch& launch, const LatentParams& params, DType kv) {
  switch (kv) {
    case DType::bf16:
      return attention_latent<__nv_bfloat16>(launch, params);
    case DType::f16:
      return attention_latent<__half>(launch, params);
    default:
      unsupported("attention_latent", "a KV cache of bf16 or f16", name(kv));
  }
}

}  // namespace minfer::cuda
