#include "kernels/cuda/attention/attention_decode.cuh"

namespace minfer::cuda {

template void attention_decode<__nv_bfloat16>(Launch&, const DecodeParams&, int32_t, int32_t);

}  // namespace minfer::cuda
