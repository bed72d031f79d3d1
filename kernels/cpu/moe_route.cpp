#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "kernels/cpu/ops.h"
#include "kernels/expert_choice.h"

namespace minfer::cpu {
namespace {

/// Scratch memory for a token's experts, [experts] each.
struct Scores {
  float* p;       ///< their scores; softmax: not yet divided by their sum
  float* choice;  ///< the value that decides the choice; -inf: cannot be chosen
  int64_t experts;
};

/// Fills p; returns the divisor of p.
float score(const MoeRouteArgs& args, const float* logits, const Scores& scores, const LaneKernels& lanes) {
  if (args.choice.score == ExpertScore::sigmoid) {
    lanes.exp_row(logits, 0.0f, -1.0f, scores.experts, scores.p);
    for (int64_t e = 0; e < scores.experts; ++e)
      scores.p[e] = 1.0f / (1.0f + scores.p[e]);
    return 1.0f;
  }
  lanes.exp_row(logits, lanes.max_row(logits, scores.experts), 1.0f, scores.experts, scores.p);
  float total = 0.0f;
  for (int64_t e = 0; e < scores.experts; ++e)
    total += scores.p[e];
  return total;
}

/// The sum of the largest one or two of a group.
float worth_of(std::span<const float> group, int32_t best) {
  float first = -INFINITY, second = -INFINITY;
  for (const float value : group) {
    second = std::max(second, std::min(first, value));
    first = std::max(first, value);
  }
  return best == 2 ? first + second : first;
}

/// Leaves only the experts of the best groups to choose from.
void keep_groups(const ExpertChoice& choice, const Scores& scores) {
  const auto size = static_cast<size_t>(scores.experts / choice.groups);
  std::array<float, kMaxExpertGroups> worth;
  for (int32_t g = 0; g < choice.groups; ++g)
    worth[g] = worth_of({scores.choice + static_cast<size_t>(g) * size, size}, choice.group_best);
  std::array<bool, kMaxExpertGroups> kept{};
  for (int32_t i = 0; i < choice.groups_used; ++i) {
    int32_t best = -1;  // the first of equal ones
    for (int32_t g = 0; g < choice.groups; ++g) {
      if (!kept[g] && (best < 0 || worth[g] > worth[best])) best = g;
    }
    kept[best] = true;
  }
  for (int32_t g = 0; g < choice.groups; ++g) {
    if (!kept[g]) std::fill_n(scores.choice + static_cast<size_t>(g) * size, size, -INFINITY);
  }
}

void route_token(const MoeRouteArgs& args, int64_t token, const Scores& scores, const LaneKernels& lanes) {
  constexpr float kLeastSum = 1e-20f;  // for scores that all vanish
  const float total = score(args, args.logits.f32_row(token), scores, lanes);
  const bool is_plain = !args.bias && args.choice.groups == 1;
  const auto* bias = static_cast<const float*>(args.bias.data);
  for (int64_t e = 0; e < scores.experts; ++e) {
    const float p = is_plain ? scores.p[e] : scores.p[e] / total;
    scores.choice[e] = args.bias ? p + bias[e] : p;
  }
  if (args.choice.groups > 1) keep_groups(args.choice, scores);
  int32_t* ids = args.expert_ids + token * args.experts_used;
  float* weights = args.expert_weights + token * args.experts_used;
  float chosen = 0.0f;
  for (int32_t j = 0; j < args.experts_used; ++j) {
    const float* largest =
        std::max_element(scores.choice, scores.choice + scores.experts);  // the first of equal ones
    ids[j] = static_cast<int32_t>(largest - scores.choice);
    weights[j] = scores.p[ids[j]];
    chosen += weights[j];
    scores.choice[ids[j]] = -INFINITY;
  }
  const float divisor = args.choice.normalise ? chosen + kLeastSum : total;
  const auto* scales = static_cast<const float*>(args.expert_scales.data);
  for (int32_t j = 0; j < args.experts_used; ++j)
    weights[j] = weights[j] / divisor * args.choice.scale * (scales != nullptr ? scales[ids[j]] : 1.0f);
}

}  // namespace

void moe_route(const MoeRouteArgs& args, const OpContext& context) {
  const int64_t experts = args.logits.cols;
  check_f32("moe_route: logits", args.logits, args.logits.rows, experts);
  check_choice(args.choice, args.bias, experts, args.experts_used);
  if (args.expert_scales) check_vector("moe_route: expert_scales", args.expert_scales, experts);
  auto* memory =
      static_cast<float*>(context.workspace->take(2 * static_cast<size_t>(experts) * sizeof(float)));
  const Scores scores{memory, memory + experts, experts};
  for (int64_t t = 0; t < args.logits.rows; ++t)
    route_token(args, t, scores, *context.lanes);
}

}  // namespace minfer::cpu
