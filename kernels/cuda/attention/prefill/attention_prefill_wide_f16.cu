#include "kernels/cuda/attention/prefill/attention_prefill_wide.cuh"

namespace minfer::cuda {

template void attention_prefill_wide<__half>(Launch&, const PrefillOptionParams&);

}  // namespace minfer::cuda
