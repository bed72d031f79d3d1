#include "kernels/cuda/attention/latent/attention_latent.cuh"

namespace minfer::cuda {

template void attention_latent<__half>(Launch&, const LatentParams&);

}  // namespace minfer::cuda
