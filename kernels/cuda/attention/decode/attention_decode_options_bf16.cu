#include "kernels/cuda/attention/decode/attention_decode.cuh"

namespace minfer::cuda {

template void attention_decode<__nv_bfloat16>(Launch&, const DecodeOptionParams&, int32_t, int32_t);

}  // namespace minfer::cuda
