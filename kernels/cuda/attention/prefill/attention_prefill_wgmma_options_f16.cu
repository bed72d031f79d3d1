#include "kernels/cuda/attention/prefill/attention_prefill_wgmma.cuh"

namespace minfer::cuda {

template void attention_prefill_wgmma<__half>(Launch&, const PrefillOptionParams&, int32_t);

}  // namespace minfer::cuda
