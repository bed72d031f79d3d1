#include <cstdint>

#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/moe/moe_route.h"
#include "kernels/cuda/sampling/order_key.cuh"

/// The experts of each token: p = softmax(logits[t]) over all experts, then the `experts_used` largest, ties
/// to the lower index, weighted with p (or p divided by the sum of the chosen) times `scale`.
///
///   logits          [tokens, experts] f32 or bf16
///   expert_ids      [tokens, experts_used] i32, largest logit first
///   expert_weights  [tokens, experts_used] f32
///
/// One warp a token, four tokens a block. Lane l keeps the logits of experts l, l + 32, ... in registers as
/// keys that order as the logits do; a choice is one maximum over the warp and one minimum over the indices
/// of the experts that have it. NaN counts as the least logit, so ids are valid whatever the logits are.
///
/// Which experts were chosen is noted on the way, a bit each: lane w has word w of its token's choices and adds what others have
/// not set already. The words are read together with the logits, so once all experts are in use nothing is written.
namespace minfer::cuda {
namespace {

constexpr int kTokensOfBlock = 4;

template <class T>
struct Routing {
  const T* logits;
  int64_t stride;
  int32_t tokens;
  int32_t experts;
  int32_t used;
  bool normalise;
  float scale;
  int32_t* ids;
  float* weights;
  ChosenExperts chosen;
};

__device__ __forceinline__ uint32_t key_of(float logit) {
  return order_key(isnan(logit) ? -INFINITY : logit);
}

/// kLaneLogits: logits of a lane.
template <class T, int kLaneLogits>
__global__ void __launch_bounds__(kTokensOfBlock* kWarpSize)
    moe_route_kernel(Routing<T> routing, Stamp stamp) {
  begin_kernel(stamp);
  allow_next_kernel();
  const int32_t token = static_cast<int32_t>(blockIdx.x * kTokensOfBlock + threadIdx.y);
  const auto lane = static_cast<int32_t>(threadIdx.x);
  if (token >= routing.tokens) return;

  const bool is_noted = routing.chosen.bits != nullptr && token < *routing.chosen.num_tokens &&
                        lane * kWarpSize < routing.experts;
  const uint32_t noted = is_noted ? __ldcg(routing.chosen.bits + lane) : ~0u;
  uint32_t own = 0;  // this token's choices among experts lane * 32 ... lane * 32 + 31
  uint32_t keys[kLaneLogits];
  uint32_t largest = 0;
#pragma unroll
  for (int s = 0; s < kLaneLogits; ++s) {
    const int32_t expert = s * kWarpSize + lane;
    keys[s] = expert < routing.experts ? key_of(to_f32(routing.logits[token * routing.stride + expert])) : 0;
    largest = max(largest, keys[s]);
  }
  largest = __reduce_max_sync(kWholeWarp, largest);
  const float max_logit = value_of_key(largest);
  float total = 0.0f;
#pragma unroll
  for (int s = 0; s < kLaneLogits; ++s)
    total += keys[s] > 0 ? expf(value_of_key(keys[s]) - max_logit) : 0.0f;
  total = warp_sum(total);

  int32_t* ids = routing.ids + static_cast<int64_t>(token) * routing.used;
  float* weights = routing.weights + static_cast<int64_t>(token) * routing.used;
  float chosen = 0.0f;
  for (int32_t j = 0; j < routing.used; ++j) {
    uint32_t best = 0;
#pragma unroll
    for (int s = 0; s < kLaneLogits; ++s)
      best = max(best, keys[s]);
    best = __reduce_max_sync(kWholeWarp, best);
    uint32_t expert = ~0u;
#pragma unroll
    for (int s = kLaneLogits - 1; s >= 0; --s)
      if (keys[s] == best) expert = static_cast<uint32_t>(s * kWarpSize + lane);
    expert = __reduce_min_sync(kWholeWarp, expert);
#pragma unroll
    for (int s = 0; s < kLaneLogits; ++s)
      if (static_cast<uint32_t>(s * kWarpSize + lane) == expert) keys[s] = 0;
    if (expert / kWarpSize == static_cast<uint32_t>(lane)) own |= 1u << expert % kWarpSize;
    const float probability = expf(value_of_key(best) - max_logit);
    chosen += probability;
    if (lane == 0) {
      ids[j] = static_cast<int32_t>(expert);
      weights[j] = probability;
    }
  }
  if ((own & ~noted) != 0) atomicOr(routing.chosen.bits + lane, own & ~noted);
  __syncwarp();
  const float divisor = routing.normalise ? chosen : total;
  for (int32_t j = lane; j < routing.used; j += kWarpSize)
    weights[j] = weights[j] / divisor * routing.scale;
}

template <class T>
void launch_moe_route(Launch& launch, const MoeRouteArgs& args, const ChosenExperts& chosen) {
  const Routing<T> routing{static_cast<const T*>(args.logits.data),
                           args.logits.stride,
                           static_cast<int32_t>(args.logits.rows),
                           static_cast<int32_t>(args.logits.cols),
                           args.experts_used,
                           args.normalise,
                           args.scale,
                           args.expert_ids,
                           args.expert_weights,
                           chosen};
  const auto run = [&](auto* kernel) {
    const auto blocks = static_cast<uint32_t>((args.logits.rows + kTokensOfBlock - 1) / kTokensOfBlock);
    launch("moe_route", kernel, dim3(blocks), dim3(kWarpSize, kTokensOfBlock), 0, routing);
  };
  if (args.logits.cols <= kWarpSize) return run(moe_route_kernel<T, 1>);
  if (args.logits.cols <= 4 * kWarpSize) return run(moe_route_kernel<T, 4>);
  if (args.logits.cols <= kMaxExperts) return run(moe_route_kernel<T, kMaxExperts / kWarpSize>);
  require_equal("moe_route: experts at most", kMaxExperts, args.logits.cols);
}

}  // namespace

void moe_route(Launch& launch, const MoeRouteArgs& args, const ChosenExperts& chosen) {
  if (args.experts_used < 1 || args.experts_used > args.logits.cols) {
    require_equal("moe_route: experts used at most", args.logits.cols, args.experts_used);
  }
  if (args.logits.rows == 0) return;
  if (args.logits.dtype == DType::f32) return launch_moe_route<float>(launch, args, chosen);
  if (args.logits.dtype == DType::bf16) return launch_moe_route<__nv_bfloat16>(launch, args, chosen);
  unsupported("moe_route", "logits of f32 or bf16", name(args.logits.dtype));
}

}  // namespace minfer::cuda
