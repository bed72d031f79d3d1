#include "kernels/cuda/product/stream_product.h"

#include <algorithm>

#include "kernels/cuda/product/stream_kernels.h"
#include "kernels/cuda/product/stream_plan.h"

namespace minfer::cuda {
namespace {

bool is_aligned(const void* data, intptr_t bytes) {
  return reinterpret_cast<intptr_t>(data) % bytes == 0;
}

}  // namespace

bool is_streamable(const PanelArgs& args, int32_t num_sms) {
  const intptr_t out_bytes = args.out_is_f32 ? 16 : 8;
  return is_worth_streaming(args.rows, args.tokens, args.up != nullptr, args.add_to_out, num_sms) &&
         args.rows % 8 == 0 && args.cols % 8 == 0 && args.x_stride % 8 == 0 && args.out_stride % 4 == 0 &&
         is_aligned(args.weight, 16) && is_aligned(args.x, 16) && is_aligned(args.bias, 16) &&
         is_aligned(args.out, out_bytes) &&
         (args.up == nullptr || (args.up > args.weight && is_aligned(args.up, 16)));
}

void stream_product(Launch& launch, const PanelArgs& args) {
  const bool gate_up = args.up != nullptr;
  for (int32_t first = 0; first < args.tokens; first += kMostStreamedTokens) {
    PanelArgs some = args;
    some.tokens = std::min<int32_t>(args.tokens - first, kMostStreamedTokens);
    some.x = static_cast<const char*>(args.x) + int64_t{first} * args.x_stride * 2;
    some.out = static_cast<char*>(args.out) + first * args.out_stride * (args.out_is_f32 ? 4 : 2);
    const StreamPlan plan = stream_plan(args.rows, args.cols, some.tokens, gate_up, launch.num_sms());
    if (gate_up) {
      stream_gate_up(launch, some, plan);
    } else {
      plan.warpgroups == 1 ? stream_64_rows(launch, some, plan) : stream_128_rows(launch, some, plan);
    }
  }
}

}  // namespace minfer::cuda
