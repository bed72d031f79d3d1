#include "kernels/cuda/attention/prefill/attention_prefill.cuh"

namespace minfer::cuda {

template void attention_prefill<__half>(Launch&, const PrefillOptionParams&, int32_t);

}  // namespace minfer::cuda
