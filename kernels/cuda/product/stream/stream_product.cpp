#include "kernels/cuda/product/stream/stream_product.h"

#include <algorithm>

#include "kernels/cuda/product/fp8/fp8_gemm.h"
#include "kernels/cuda/product/stream/stream_kernels.h"
#include "kernels/cuda/product/stream/stream_plan.h"
#include "kernels/cuda/product/tile_stream/tile_stream_kernels.h"
#include "kernels/cuda/weights/weight_layout.h"
#include "kernels/cuda/weights/weight_types.h"

namespace minfer::cuda {
namespace {

bool is_aligned(const void* data, intptr_t bytes) {
  return reinterpret_cast<intptr_t>(data) % bytes == 0;
}

/// As boxes of x are brought, and rows of the output stored.
bool is_aligned(const PanelArgs& args) {
  return args.cols % 8 == 0 && args.x_stride % 8 == 0 && args.rows % 4 == 0 && args.out_stride % 4 == 0 &&
         is_aligned(args.x, 16) && is_aligned(args.bias, 16) && is_aligned(args.up_bias, 16) &&
         is_aligned(args.out, args.out_is_f32 ? 16 : 8);
}

/// Whether rows of the output can be stored 16 bytes at a time.
bool stores_pieces(const PanelArgs& args) {
  return args.out_is_f32 || (args.out_stride % 8 == 0 && is_aligned(args.out, 16));
}

/// Calls stream(some) for each kMostStreamedTokens.
template <class Stream>
void for_streamed_tokens(const PanelArgs& args, const Stream& stream) {
  for (int32_t first = 0; first < args.tokens; first += kMostStreamedTokens) {
    PanelArgs some = args;
    some.tokens = std::min<int32_t>(args.tokens - first, kMostStreamedTokens);
    some.x = static_cast<const char*>(args.x) + int64_t{first} * args.x_stride * 2;
    some.out = static_cast<char*>(args.out) + first * args.out_stride * (args.out_is_f32 ? 4 : 2);
    stream(some);
  }
}

}  // namespace

bool is_streamable(const PanelArgs& args, int32_t num_sms) {
  return is_worth_streaming(args.rows, args.tokens, args.up != nullptr, args.add_to_out, num_sms) &&
         args.rows % 8 == 0 && is_aligned(args) && stores_pieces(args) && is_aligned(args.weight, 16) &&
         (args.up == nullptr || (args.up > args.weight && is_aligned(args.up, 16)));
}

void stream_product(Launch& launch, const PanelArgs& args) {
  const bool gate_up = args.up != nullptr;
  for_streamed_tokens(args, [&](const PanelArgs& some) {
    const StreamPlan plan = stream_plan(args.rows, args.cols, some.tokens, gate_up, launch.num_sms());
    if (gate_up) {
      launch_stream_of<2, true>(launch, some, plan);
    } else {
      plan.warpgroups == 1 ? launch_stream_of<1, false>(launch, some, plan)
                           : launch_stream_of<2, false>(launch, some, plan);
    }
  });
}

bool is_tile_streamable(DType type, const PanelArgs& args) {
  return is_worth_tile_streaming(args.tokens, is_rare(type)) && is_aligned(args) &&
         args.cols % kStageColumns == 0 &&
         (args.up == nullptr ||
          (args.up > args.weight && args.rows % (2 * kPanelRows) == 0 && stores_pieces(args)));
}

void tile_stream_product(Launch& launch, DType type, const PanelArgs& args) {
  for_type(TiledTypes{}, "tile_stream_product", type, [&](auto known) {
    for_streamed_tokens(args, [&](const PanelArgs& some) {
      launch_tile_stream<known>(
          launch, some,
          tile_stream_plan(args.rows, args.cols, some.tokens, args.up != nullptr, launch.num_sms()));
    });
  });
}

bool is_fp8_streamable(int64_t rows, int64_t cols, bool gate_up) {
  return cols % kFp8Columns == 0 && rows % (gate_up ? kFp8Columns : 4) == 0;
}

void fp8_stream_product(Launch& launch, const Fp8Product& product) {
  const PanelArgs& args = product.args;
  const bool gate_up = args.up != nullptr;
  for (int32_t first = 0; first < args.tokens; first += kMostStreamedTokens) {
    Fp8Product some = product;
    some.args.tokens = std::min<int32_t>(args.tokens - first, kMostStreamedTokens);
    some.x = product.x.from(first);
    some.out = product.out.from(first);
    some.args.out = static_cast<char*>(args.out) + first * args.out_stride * (args.out_is_f32 ? 4 : 2);
    if (is_worth_fp8_gemm(args.rows, args.cols, some.args.tokens, gate_up)) {
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
