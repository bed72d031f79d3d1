#include "kernels/cuda/attention/prefill/attention_prefill_wide.cuh"

namespace minfer::cuda {

template void attention_prefill_wide<__nv_bfloat16>(Launch&, const PrefillOptionParams&);

}  // namespace minfer::cuda
