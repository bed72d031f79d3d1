#include "kernels/cuda/attention/latent/attention_latent.cuh"

namespace minfer::cuda {

template void attention_latent<__nv_bfloat16>(Launch&, const LatentParams&);

}  // namespace minfer::cuda
