#include <string>

#include "kernels/cuda/attention/decode/attention_decode.h"

namespace minfer::cuda {
namespace {

void decode_rare_heads(Launch& launch, const DecodeOptionParams& params, DType kv, int32_t head_size,
                       int32_t num_shares) {
  switch (head_size) {
    case 80:
      return attention_decode<80>(launch, params, kv, num_shares);
    case 96:
      return attention_decode<96>(launch, params, kv, num_shares);
    case 192:
      return attention_decode<192>(launch, params, kv, num_shares);
    case 512:
      return attention_decode<512>(launch, params, kv, num_shares);
    default:
      unsupported("attention on tensor cores", "a head size of 64, 80, 96, 128, 192, 256 or 512",
                  std::to_string(head_size));
  }
}
void decode_rare_heads(Launch& launch, const DecodeParams& params, DType kv, int32_t head_size,
                       int32_t num_shares) {
  decode_rare_heads(launch, DecodeOptionParams{params, {}}, kv, head_size, num_shares);
}

template <class Params>
void decode_by_head(Launch& launch, const Params& params, DType kv, int32_t head_size, int32_t num_shares) {
  switch (head_size) {
    case 64:
      return attention_decode<64>(launch, params, kv, num_shares);
    case 128:
      return attention_decode<128>(launch, params, kv, num_shares);
    case 256:
      return attention_decode<256>(launch, params, kv, num_shares);
    default:
      return decode_rare_heads(launch, params, kv, head_size, num_shares);
  }
}

}  // namespace

void attention_decode(Launch& launch, const DecodeParams& params, DType kv, int32_t head_size,
                      int32_t num_shares) {
  decode_by_head(launch, params, kv, head_size, num_shares);
}

void attention_decode(Launch& launch, const DecodeOptionParams& params, DType kv, int32_t head_size,
                      int32_t num_shares) {
  decode_by_head(launch, params, kv, head_size, num_shares);
}

}  // namespace minfer::cuda
