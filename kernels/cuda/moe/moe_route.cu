#include <cstdint>

#include "kernels/cuda/moe/moe_route.h"
#include "kernels/cuda/ptx/element.cuh"
#include "kernels/cuda/ptx/order_key.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/expert_choice.h"

/// Chooses the experts of each token (see MoeRouteArgs): p = softmax(logits[t]) over all experts, or the sigmoid of each. It takes
/// the `experts_used` with the largest p + bias (ties: lower index), weighted by p, or p over the sum of the chosen, times `scale`.
///
///   logits          [tokens, experts] f32 or bf16
///   expert_ids      [tokens, experts_used] i32, largest logit first
///   expert_weights  [tokens, experts_used] f32
///
/// One warp a token, four tokens a block. Lane l keeps experts l, l + 32, ... in registers as keys with the order of the
/// choice: logits for a softmax without bias and groups (kPlain), else p + bias. A choice is one maximum over the warp
/// and one minimum over the indices of the experts with this maximum. NaN counts as the least, so ids are valid for any
/// logits. With groups, lane g keeps the key of group g's worth; experts of groups that are not chosen lose their keys.
///
/// The kernel notes the chosen experts, a bit each: lane w has word w of its token's choices and adds bits that
/// others have not set. The words are read with the logits, so nothing is written once all experts are in use.
namespace minfer::cuda {
namespace {

constexpr int kTokensOfBlock = 4;
constexpr float kLeastSum = 1e-20f;  ///< for scores that all vanish
static_assert(kMaxExpertGroups <= kWarpSize);

template <class T>
struct Routing {
  const T* logits;
  int64_t stride;
  int32_t tokens;
  int32_t experts;
  int32_t used;
  ExpertChoice choice;
  const float* bias;
  const float* scales;  ///< MoeRouteArgs::expert_scales
  int32_t* ids;
  float* weights;
  ChosenExperts chosen;
};

__device__ __forceinline__ uint32_t key_of(float logit) {
  return order_key(isnan(logit) ? -INFINITY : logit);
}

/// A score before division by the sum of all.
__device__ __forceinline__ float score_of(ExpertScore kind, float logit, float max_logit) {
  return kind == ExpertScore::sigmoid ? 1.0f / (1.0f + expf(-logit)) : expf(logit - max_logit);
}

/// The lane with the largest `key` of the warp; the first of equals.
__device__ __forceinline__ int32_t first_largest(uint32_t key) {
  return __ffs(static_cast<int>(__ballot_sync(kWholeWarp, key == __reduce_max_sync(kWholeWarp, key)))) - 1;
}

/// The sum of the best one or two keys of a group. `keys`: this lane's keys in the group, 0 for its other experts.
template <int kLaneLogits>
__device__ __forceinline__ float worth_of(const uint32_t (&keys)[kLaneLogits], int32_t best) {
  uint32_t first = 0, second = 0;  // of this lane
#pragma unroll
  for (int s = 0; s < kLaneLogits; ++s) {
    second = max(second, min(first, keys[s]));
    first = max(first, keys[s]);
  }
  const int32_t owner = first_largest(first);
  const uint32_t largest = __shfl_sync(kWholeWarp, first, owner);
  if (best < 2) return value_of_key(largest);
  const bool owns = static_cast<int32_t>(threadIdx.x) == owner;
  return value_of_key(largest) + value_of_key(__reduce_max_sync(kWholeWarp, owns ? second : first));
}

/// Clears the keys of experts in groups that are not chosen.
template <int kLaneLogits>
__device__ __forceinline__ void keep_groups(const ExpertChoice& choice, int32_t experts,
                                            uint32_t (&keys)[kLaneLogits]) {
  const auto lane = static_cast<int32_t>(threadIdx.x);
  const int32_t size = experts / choice.groups;
  uint32_t worth = 0;  // of group `lane`
  for (int32_t g = 0; g < choice.groups; ++g) {
    uint32_t of_group[kLaneLogits];
#pragma unroll
    for (int s = 0; s < kLaneLogits; ++s)
      of_group[s] = (s * kWarpSize + lane) / size == g ? keys[s] : 0;
    const float found = worth_of(of_group, choice.group_best);
    if (lane == g) worth = key_of(found);
  }
  uint32_t kept = 0;
  for (int32_t i = 0; i < choice.groups_used; ++i) {
    const int32_t best = first_largest(worth);
    kept |= 1u << best;
    if (lane == best) worth = 0;
  }
#pragma unroll
  for (int s = 0; s < kLaneLogits; ++s) {
    const int32_t expert = s * kWarpSize + lane;
    if (expert < experts && (kept >> expert / size & 1) == 0) keys[s] = 0;
  }
}

/// kLaneLogits: logits per lane. kPlain: see above.
template <class T, int kLaneLogits, bool kPlain>
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
  const ExpertScore kind = kPlain ? ExpertScore::softmax : routing.choice.score;
  if constexpr (!kPlain) {
    if (kind == ExpertScore::sigmoid) total = 1.0f;
#pragma unroll
    for (int s = 0; s < kLaneLogits; ++s) {
      const int32_t expert = s * kWarpSize + lane;
      if (expert >= routing.experts) continue;
      const float score = score_of(kind, value_of_key(keys[s]), max_logit) / total;
      keys[s] = key_of(routing.bias != nullptr ? score + routing.bias[expert] : score);
    }
    if (routing.choice.groups > 1) keep_groups(routing.choice, routing.experts, keys);
  }

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
    // The choice may be by a biased key: read the logit again; NaN is the least.
    const float logit = kPlain
                            ? value_of_key(best)
                            : value_of_key(key_of(to_f32(routing.logits[token * routing.stride + expert])));
    const float score = score_of(kind, logit, max_logit);
    chosen += score;
    if (lane == 0) {
      ids[j] = static_cast<int32_t>(expert);
      weights[j] = score;
    }
  }
  if ((own & ~noted) != 0) atomicOr(routing.chosen.bits + lane, own & ~noted);
  __syncwarp();
  const float divisor = routing.choice.normalise ? chosen + kLeastSum : total;
  for (int32_t j = lane; j < routing.used; j += kWarpSize) {
    const float scale = routing.scales != nullptr ? routing.scales[ids[j]] : 1.0f;
    weights[j] = weights[j] / divisor * routing.choice.scale * scale;
  }
}

template <class T, bool kPlain>
void launch_moe_route(Launch& launch, const MoeRouteArgs& args, const ChosenExperts& chosen) {
  const Routing<T> routing{static_cast<const T*>(args.logits.data),
                           args.logits.stride,
                           static_cast<int32_t>(args.logits.rows),
                           static_cast<int32_t>(args.logits.cols),
                           args.experts_used,
                           args.choice,
                           static_cast<const float*>(args.bias.data),
                           static_cast<const float*>(args.expert_scales.data),
                           args.expert_ids,
                           args.expert_weights,
                           chosen};
  const auto run = [&](auto* kernel) {
    const auto blocks = static_cast<uint32_t>((args.logits.rows + kTokensOfBlock - 1) / kTokensOfBlock);
    launch("moe_route", kernel, dim3(blocks), dim3(kWarpSize, kTokensOfBlock), 0, routing);
  };
  if (args.logits.cols <= kWarpSize) return run(moe_route_kernel<T, 1, kPlain>);
  if (args.logits.cols <= 4 * kWarpSize) return run(moe_route_kernel<T, 4, kPlain>);
  if (args.logits.cols <= kMaxExperts) return run(moe_route_kernel<T, kMaxExperts / kWarpSize, kPlain>);
  require_equal("moe_route: experts at most", kMaxExperts, args.logits.cols);
}

template <class T>
void launch_moe_route(Launch& launch, const MoeRouteArgs& args, const ChosenExperts& chosen) {
  const bool is_plain = args.choice.score == ExpertScore::softmax && !args.bias && args.choice.groups == 1;
  is_plain ? launch_moe_route<T, true>(launch, args, chosen)
           : launch_moe_route<T, false>(launch, args, chosen);
}

}  // namespace

void moe_route(Launch& launch, const MoeRouteArgs& args, const ChosenExperts& chosen) {
  check_choice(args.choice, args.bias, args.logits.cols, args.experts_used);
  if (args.expert_scales)
    require_equal("moe_route: expert_scales", args.logits.cols, args.expert_scales.cols);
  if (args.logits.rows == 0) return;
  if (args.logits.dtype == DType::f32) return launch_moe_route<float>(launch, args, chosen);
  if (args.logits.dtype == DType::bf16) return launch_moe_route<__nv_bfloat16>(launch, args, chosen);
  unsupported("moe_route", "logits of f32 or bf16", name(args.logits.dtype));
}

}  // namespace minfer::cuda
