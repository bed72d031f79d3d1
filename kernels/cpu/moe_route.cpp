#include <algorithm>

#include "kernels/cpu/check.h"
#include "kernels/cpu/ops.h"

namespace minfer::cpu {
namespace {

/// `probability` [experts] is scratch memory.
void route_token(const MoeRouteArgs& args, int64_t token, float* probability, const LaneKernels& lanes) {
  const int64_t experts = args.logits.cols;
  const float* logits = args.logits.f32_row(token);
  int32_t* ids = args.expert_ids + token * args.experts_used;
  float* weights = args.expert_weights + token * args.experts_used;
  lanes.exp_row(logits, lanes.max_row(logits, experts), 1.0f, experts, probability);
  float total = 0.0f;
  for (int64_t e = 0; e < experts; ++e)
    total += probability[e];
  float chosen = 0.0f;
  for (int32_t j = 0; j < args.experts_used; ++j) {
    const float* largest = std::max_element(probability, probability + experts);  // the first of equals
    ids[j] = static_cast<int32_t>(largest - probability);
    weights[j] = *largest;
    chosen += *largest;
    probability[ids[j]] = -1.0f;
  }
  const float divisor = args.normalise ? chosen : total;
  for (int32_t j = 0; j < args.experts_used; ++j)
    weights[j] = weights[j] / divisor * args.scale;
}

}  // namespace

void moe_route(const MoeRouteArgs& args, const OpContext& context) {
  const int64_t experts = args.logits.cols;
  check_f32("moe_route: logits", args.logits, args.logits.rows, experts);
  if (args.experts_used < 1 || args.experts_used > experts) {
    fail("moe_route: {} experts used, expected 1 to {}", args.experts_used, experts);
  }
  auto* probability =
      static_cast<float*>(context.workspace->take(static_cast<size_t>(experts) * sizeof(float)));
  for (int64_t t = 0; t < args.logits.rows; ++t)
    route_token(args, t, probability, *context.lanes);
}

}  // namespace minfer::cpu
