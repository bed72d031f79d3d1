#include <string>

#include "kernels/cuda/attention/attention_path.h"
#include "kernels/cuda/attention/prefill/attention_prefill_wgmma.cuh"

namespace minfer::cuda {
namespace {

template <int kHead>
__global__ __launch_bounds__(kWgmmaThreads, 1) void attention_prefill_wgmma_kernel(PrefillParams p,
                                                                                   Stamps stamps) {
  const EndStamp end_stamp(stamps);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char memory[];
  const QueryTile tile = find_query_tile(p);
  begin_kernel(stamps);
  allow_next_kernel();
  if (tile.tokens == 0) return;
  using Kernel = WgmmaKernel<kHead>;
  Kernel{p, *reinterpret_cast<typename Kernel::Shared*>(memory), tile}.run();
#else
  __trap();  // chosen on compute capability 9.0 alone, for which sm_90a is built
#endif
}

template <int kHead>
void launch_kernel(Launch& launch, const PrefillParams& params) {
  static_assert(sizeof(typename WgmmaKernel<kHead>::Shared) <= kWgmmaSharedBytes);
  launch("attention", attention_prefill_wgmma_kernel<kHead>,
         dim3(static_cast<unsigned>(params.max_tiles * params.cache.kv_heads)), dim3(kWgmmaThreads),
         sizeof(typename WgmmaKernel<kHead>::Shared), params);
}

}  // namespace

void attention_prefill_wgmma(Launch& launch, const PrefillParams& params, int32_t head_size) {
  if (head_size == 64) return launch_kernel<64>(launch, params);
  if (head_size == 128) return launch_kernel<128>(launch, params);
  unsupported("attention", "a head size of 64 or 128", std::to_string(head_size));
}

}  // namespace minfer::cuda
