#include "kernels/cuda/product/stream_product.h"

#include <algorithm>

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/product/fp8/fp8_gemm.h"
#include "kernels/cuda/product/stream/stream_kernels.h"
#include "kernels/cuda/product/tile_stream/tile_stream_kernels.h"
#include "kernels/cuda/weights/weight_types.h"

namespace minfer::cuda {
namespace {

/// Calls stream(some) for every kMostStreamedTokens tokens.
template <class Stream>
void for_streamed_tokens(const ProductArgs& args, const Stream& stream) {
  for (int32_t first = 0; first < args.tokens; first += kMostStreamedTokens) {
    ProductArgs some = args;
    some.tokens = std::min<int32_t>(args.tokens - first, kMostStreamedTokens);
    some.x = static_cast<const char*>(args.x) + int64_t{first} * args.x_stride * 2;
    some.out = static_cast<char*>(args.out) + first * args.out_stride * (args.out_is_f32 ? 4 : 2);
    stream(some);
  }
}

}  // namespace

void stream_product(Launch& launch, const ProductArgs& args) {
  const bool gate_up = args.up != nullptr;
  for_streamed_tokens(args, [&](const ProductArgs& some) {
    const StreamPlan plan = stream_plan(args.rows, args.cols, some.tokens, gate_up, launch.num_sms());
    if (gate_up) {
      launch_stream_of<2, true>(launch, some, plan);
    } else {
      plan.warpgroups == 1 ? launch_stream_of<1, false>(launch, some, plan)
                           : launch_stream_of<2, false>(launch, some, plan);
    }
  });
}

void tile_stream_product(Launch& launch, DType type, const ProductArgs& args) {
  for_type(TiledTypes{}, "tile_stream_product", type, [&](auto known) {
    for_streamed_tokens(args, [&](const ProductArgs& some) {
      launch_tile_stream<known>(
          launch, some,
          tile_stream_plan(args.rows, args.cols, some.tokens, args.up != nullptr, launch.num_sms()));
    });
  });
}

void fp8_product(Launch& launch, const Fp8Product& product) {
  const ProductArgs& args = product.args;
  const bool gate_up = args.up != nullptr;
  for (int32_t first = 0; first < args.tokens; first += kMostStreamedTokens) {
    Fp8Product some = product;
    some.args.tokens = std::min<int32_t>(args.tokens - first, kMostStreamedTokens);
    some.x = product.x.from(first);
    some.out = product.out.from(first);
    some.args.out = static_cast<char*>(args.out) + first * args.out_stride * (args.out_is_f32 ? 4 : 2);
    const ProductShape shape{.weight = DType::fp8,
                             .up = DType::fp8,
                             .x = DType::fp8,
                             .out = gate_up ? DType::fp8 : DType::f32,
                             .rows = args.rows,
                             .cols = args.cols,
                             .gate_up = gate_up};
    const DeviceFacts device{.sms = launch.num_sms(), .has_wgmma = true};
    if (choose(shape, some.args.tokens, device) == ProductKernel::fp8_gemm) {
      const Fp8GemmPlan plan = fp8_gemm_plan(args.rows, some.args.tokens, gate_up, launch.num_sms());
      gate_up ? fp8_gemm<true>(launch, some, plan) : fp8_gemm<false>(launch, some, plan);
      continue;
    }
    const StreamPlan plan =
        fp8_stream_plan(args.rows, args.cols, some.args.tokens, gate_up, launch.num_sms());
    if (gate_up) {
      launch_fp8_stream<2, 2, true>(launch, some, plan);
    } else if (plan.warpgroups == 4) {
      launch_fp8_stream<2, 2, false>(launch, some, plan);
    } else {
      plan.warpgroups == 2 ? launch_fp8_stream<2, 1, false>(launch, some, plan)
                           : launch_fp8_stream<1, 1, false>(launch, some, plan);
    }
  }
}

}  // namespace minfer::cuda
