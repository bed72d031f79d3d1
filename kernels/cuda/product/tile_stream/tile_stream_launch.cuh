#pragma once

#include <algorithm>

#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/product/stream/stream_launch.cuh"
#include "kernels/cuda/product/tile_stream/tile_stream.cuh"
#include "kernels/cuda/product/tile_stream/tile_stream_kernels.h"

namespace minfer::cuda {

/// The map of stages of weights: kTilesAbove tiles, or two of gate and two of up for each four tiles.
template <class Form>
CUtensorMap tile_map(const ProductArgs& args) {
  using Pieces = TilePieces<Form::type>;
  const int64_t strip_bytes = tiles_of(args.cols) * Tile<Form::type>::kBytes;
  const TensorDimension row{Pieces::kBytes / 2, 2, Pieces::kBytes / 2};
  const TensorDimension rows{tiles_of(args.cols) * Pieces::kCount, Pieces::kBytes, Pieces::kCount};
  if (args.up == nullptr) {
    const TensorDimension dimensions[] = {row, rows, {strips_of(args.rows), strip_bytes, Form::kTilesAbove}};
    return tensor_map(args.weight, dimensions, BoxLayout::plain);
  }
  const auto distance = static_cast<const char*>(args.up) - static_cast<const char*>(args.weight);
  const TensorDimension dimensions[] = {row,
                                        rows,
                                        {2, strip_bytes, 2},
                                        {2, distance, 2},
                                        {strips_of(args.rows) / 2, 2 * strip_bytes, Form::kTilesAbove / 4}};
  return tensor_map(args.weight, dimensions, BoxLayout::plain);
}

template <class Form>
CUtensorMap tile_x_map(const ProductArgs& args) {
  const TensorDimension x[] = {{kStageColumns, 2, kStageColumns},
                               {args.tokens, int64_t{args.x_stride} * 2, Form::kTokens},
                               {args.cols / kStageColumns, kSliceRowBytes, Form::kXSlices}};
  return tensor_map(args.x, x);
}

template <class Form>
StreamArgs tile_stream_args(const ProductArgs& args) {
  const int32_t out_rows = args.up != nullptr ? Form::kRows / 2 : Form::kRows;
  return {.output = args,
          .depth = static_cast<int32_t>(tiles_of(args.cols)),
          .tiles = (args.rows + out_rows - 1) / out_rows,
          .token_blocks = (args.tokens + Form::kTokens - 1) / Form::kTokens,
          .partials = reinterpret_cast<float4*>(args.partials),
          .arrivals = args.arrivals};
}

template <class Form>
void launch_tile_form(Launch& launch, const ProductArgs& args, const StreamPlan& plan) {
  using Shared = TileStreamShared<Form>;
  static_assert(sizeof(Shared) <= Form::kSharedBytes);
  StreamArgs stream = tile_stream_args<Form>(args);
  stream.splits = plan.splits;
  stream.by_rounds = plan.by_rounds;
  launch.reads_ahead(int64_t{plan.blocks} * Form::kStages * Form::kStageBytes)
      .in_clusters(plan.splits)(args.up != nullptr ? "tile_stream_gate_up" : "tile_stream_product",
                                tile_stream_kernel<Form, StreamSchedule>,
                                dim3(static_cast<unsigned>(plan.blocks)), dim3(Form::kThreads),
                                std::max(sizeof(Shared), kMoreThanHalfOfShared), stream, tile_map<Form>(args),
                                tile_x_map<Form>(args));
}

template <DType type, int kRowGroups>
void launch_tile_stream_of(Launch& launch, const ProductArgs& args, const StreamPlan& plan) {
  for_value(TokenTiles<kRowGroups == 2>{}, "tile stream by tiles of tokens", plan.token_tile,
            [&](auto tokens) {
              // With few tokens there are two warpgroups either way.
              constexpr int kParts = kRowGroups == 1 && decltype(tokens)::value <= 32 ? 2 : 1;
              launch_tile_form<TileStream<type, tokens, kRowGroups, kParts>>(launch, args, plan);
            });
}

template <DType type>
void launch_tile_stream(Launch& launch, const ProductArgs& args, const StreamPlan& plan) {
  plan.warpgroups == 1 ? launch_tile_stream_of<type, 1>(launch, args, plan)
                       : launch_tile_stream_of<type, 2>(launch, args, plan);
}

}  // namespace minfer::cuda
