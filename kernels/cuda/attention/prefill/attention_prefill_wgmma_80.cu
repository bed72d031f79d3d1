#include "kernels/cuda/attention/prefill/attention_prefill_wgmma.cuh"

namespace minfer::cuda {

template void attention_prefill_wgmma<80>(Launch&, const PrefillOptionParams&, DType);

}  // namespace minfer::cuda
