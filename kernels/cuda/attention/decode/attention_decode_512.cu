#include "kernels/cuda/attention/decode/attention_decode.cuh"

namespace minfer::cuda {

template void attention_decode<512>(Launch&, const DecodeOptionParams&, DType, int32_t);

}  // namespace minfer::cuda
