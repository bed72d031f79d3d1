#include <string>

#include "kernels/cuda/attention/prefill/attention_prefill.h"

namespace minfer::cuda {
namespace {

void prefill_rare_heads(Launch& launch, const PrefillOptionParams& params, DType kv, int32_t head_size) {
  switch (head_size) {
    case 80:
      return attention_prefill_wgmma<80>(launch, params, kv);
    case 96:
      return attention_prefill_wgmma<96>(launch, params, kv);
    case 192:
      return attention_prefill_wgmma<192>(launch, params, kv);
    default:
      unsupported("attention by warpgroups", "a head size of 64, 80, 96, 128, 192 or 256",
                  std::to_string(head_size));
  }
}
void prefill_rare_heads(Launch& launch, const PrefillParams& params, DType kv, int32_t head_size) {
  prefill_rare_heads(launch, PrefillOptionParams{params, {}}, kv, head_size);
}

template <class Params>
void prefill_by_head(Launch& launch, const Params& params, DType kv, int32_t head_size) {
  switch (head_size) {
    case 64:
      return attention_prefill_wgmma<64>(launch, params, kv);
    case 128:
      return attention_prefill_wgmma<128>(launch, params, kv);
    case 256:
      return attention_prefill_wgmma<256>(launch, params, kv);
    default:
      return prefill_rare_heads(launch, params, kv, head_size);
  }
}

}  // namespace

void attention_prefill_wgmma(Launch& launch, const PrefillParams& params, DType kv, int32_t head_size) {
  prefill_by_head(launch, params, kv, head_size);
}

void attention_prefill_wgmma(Launch& launch, const PrefillOptionParams& params, DType kv, int32_t head_size) {
  prefill_by_head(launch, params, kv, head_size);
}

}  // namespace minfer::cuda
