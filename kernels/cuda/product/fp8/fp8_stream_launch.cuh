#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/product/fp8/fp8_stream.cuh"
#include "kernels/cuda/product/fp8/fp8_stream_kernels.h"
#include "kernels/cuda/product/stream/stream_launch.cuh"

namespace minfer::cuda {

/// Halves of tiles: 128 columns of all tiles of a block, with gate's and up's tiles in pairs.
template <class Form>
CUtensorMap fp8_weight_map(const ProductArgs& args) {
  constexpr int32_t kTile = Tile<DType::fp8>::kBytes;
  const int64_t tiles = tiles_of(args.cols), strip_bytes = tiles * kTile;
  const TensorDimension bytes{kTile / 8, 8, Form::kTileBytes / 8}, columns{tiles, kTile, 1};
  const TensorDimension strips{strips_of(args.rows), strip_bytes,
                               Form::kGateUp ? Form::kTilesAbove / 2 : Form::kTilesAbove};
  if constexpr (Form::kGateUp) {
    const auto distance = static_cast<const char*>(args.up) - static_cast<const char*>(args.weight);
    const TensorDimension dimensions[] = {bytes, columns, strips, {2, distance, 2}};
    return tensor_map(args.weight, dimensions, BoxLayout::plain);
  } else {
    const TensorDimension dimensions[] = {bytes, columns, strips};
    return tensor_map(args.weight, dimensions, BoxLayout::plain);
  }
}

template <class Form>
void launch_fp8_form(Launch& launch, const Fp8Product& product, const StreamPlan& plan) {
  using Shared = Fp8Shared<Form>;
  static_assert(sizeof(Shared) <= kMostStreamBytes);
  const ProductArgs& args = product.args;
  const int32_t groups = (args.cols + kFp8Columns - 1) / kFp8Columns;
  Fp8StreamArgs stream;
  stream.output = args;
  stream.depth = (groups + Form::kSlices - 1) / Form::kSlices;
  stream.tiles = (args.rows + Form::kOutRows - 1) / Form::kOutRows;
  stream.token_blocks = (args.tokens + Form::kTokens - 1) / Form::kTokens;
  stream.splits = plan.splits;
  stream.by_rounds = plan.by_rounds;
  stream.partials = reinterpret_cast<float4*>(args.partials);
  stream.arrivals = args.arrivals;
  stream.out = product.out;
  const TensorDimension x[] = {{kFp8Columns, 1, kFp8Columns},
                               {args.tokens, product.x.cols, Form::kTokens},
                               {groups, kFp8Columns, Form::kSlices}};
  const TensorDimension scales[] = {{args.tokens, 2, Form::kTokens},
                                    {groups, int64_t{product.x.scale_stride} * 2, 1}};
  launch.reads_ahead(int64_t{plan.blocks} * Form::kStages * Form::kWeightBytes)
      .in_clusters(plan.splits)(Form::kGateUp ? "fp8_stream_gate_up" : "fp8_stream_product",
                                fp8_stream_kernel<Form>, dim3(static_cast<unsigned>(plan.blocks)),
                                dim3(Form::kThreads), std::max(sizeof(Shared), kMoreThanHalfOfShared), stream,
                                fp8_weight_map<Form>(args), tensor_map(product.x.codes, x),
                                tensor_map(product.x.scales, scales, BoxLayout::plain));
}

template <int kConsumerGroups, int kTurns, bool kGateUp>
void launch_fp8_stream(Launch& launch, const Fp8Product& product, const StreamPlan& plan) {
  // fp8_stream_plan() has tiles of 256 rows only with 128 tokens.
  using Tiles = std::conditional_t<kTurns == 2 && !kGateUp, Values<128>, TokenTiles<false>>;
  for_value(Tiles{}, "FP8 stream by tiles of tokens", plan.token_tile, [&](auto tokens) {
    launch_fp8_form<Fp8Form<tokens, kConsumerGroups, kTurns, kGateUp>>(launch, product, plan);
  });
}

}  // namespace minfer::cuda
