#include "kernels/cuda/choice/expert_choice.h"

#include <algorithm>

#include "kernels/cuda/choice/expert_strip_sizes.h"
#include "kernels/cuda/choice/product_choice.h"

namespace minfer::cuda {
namespace {

constexpr int32_t kRowRoutes = 8;  ///< of a batch of ExpertKernel::rows

/// bf16, and the quantised types of experts.
bool has_kernels(DType type) {
  return type == DType::bf16 || (is_tiled(type) && expert_dtype(type) == type);
}

bool takes_tensor_cores(const ExpertShape& s) {
  return has_kernels(s.weight) && s.x == DType::bf16 && s.x_is_aligned && s.cols % 8 == 0;
}

bool takes_stream(const ExpertShape& s, const DeviceFacts& device) {
  const bool takes_eights =  // bf16 weights are copied, and bf16 rows stored, by eights
      s.weight != DType::bf16 || (s.rows % 8 == 0 && s.out_takes_pieces);
  return device.has_wgmma && s.has_sorted_x && takes_tensor_cores(s) && takes_eights && s.rows % 4 == 0 &&
         s.weight_is_aligned && s.out_is_aligned;
}

/// The routes of an expert that ExpertKernel::expert_strip multiplies together, 8 or 16. 0: no kernel for the type, or x too wide.
int32_t strip_routes(const ExpertShape& s, const DeviceFacts& device) {
  if (!takes_tensor_cores(s) || !is_tiled(s.weight) || is_rare(s.weight)) return 0;
  constexpr int32_t kMostTiles = 2;
  return kStripTokens * std::min(expert_slots(s.weight, s.cols, device.strip_shared_bytes), kMostTiles);
}

}  // namespace

ExpertChoice choose_experts(const ExpertShape& shape, int64_t tokens, int64_t used,
                            const DeviceFacts& device) {
  const int64_t routes = tokens * used;
  if (takes_tensor_cores(shape)) {
    // The experts of one token all differ, and of few routes hardly two share an expert.
    if (tokens == 1 || 4 * routes <= shape.experts) return {ExpertKernel::vector};
    // Experts whose routes fill up to five eighths of a batch on average.
    const int32_t strip = strip_routes(shape, device);
    if (8 * routes <= 5 * int64_t{strip} * shape.experts)
      return {ExpertKernel::expert_strip, strip, kStripTokens};
    const int32_t tile = expert_token_tile(shape.weight, routes, shape.experts);
    if (tile > 0 && takes_stream(shape, device)) return {ExpertKernel::stream, tile};
    return {ExpertKernel::strip, routes > 8 * shape.experts ? 32 : 8};
  }
  return {ExpertKernel::rows, tokens == 1 ? 0 : kRowRoutes};
}

int32_t expert_token_tile(DType weights, int64_t routes, int64_t experts) {
  // The smallest mean number of routes of an expert. Quantised weights become operands first, which does not pay for few routes.
  const int64_t least = weights == DType::bf16 ? 1 : 4;
  constexpr int64_t kRoutesOfMiddleTile = 16, kRoutesOfLargeTile = 64;
  if (routes < least * experts) return 0;
  if (routes < kRoutesOfMiddleTile * experts) return 32;
  return routes < kRoutesOfLargeTile * experts ? 64 : 128;
}

}  // namespace minfer::cuda
