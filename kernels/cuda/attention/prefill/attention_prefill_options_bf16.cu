#include "kernels/cuda/attention/prefill/attention_prefill.cuh"

namespace minfer::cuda {

template void attention_prefill<__nv_bfloat16>(Launch&, const PrefillOptionParams&, int32_t);

}  // namespace minfer::cuda
