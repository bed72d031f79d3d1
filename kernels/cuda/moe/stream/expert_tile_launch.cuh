#pragma once

#include "kernels/cuda/moe/stream/expert_stream_kernels.h"
#include "kernels/cuda/moe/stream/expert_stream_launch.cuh"
#include "kernels/cuda/product/tile_stream/tile_stream.cuh"

namespace minfer::cuda {

template <class Form, int kTokens>
__device__ __forceinline__ void copy_rows(void* to, const CUtensorMap& map, SharedBarrier& barrier,
                                          uint64_t policy, bool gate_up,
                                          const ExpertSegment<kTokens>& segment, int32_t column) {
  constexpr int kPieces = TilePieces<Form::type>::kCount;
  if (gate_up) {
    copy_box(to, map, barrier, policy, 0, column * kPieces, segment.tile * (Form::kTilesAbove / 2), 0,
             segment.expert);
  } else {
    copy_box(to, map, barrier, policy, 0, column * kPieces, segment.tile * Form::kTilesAbove, segment.expert);
  }
}

/// The map of stages of an expert's weights: kTilesAbove tiles, or half of them of gate and then half of up.
template <class Form>
CUtensorMap expert_tile_map(const MoeProduct& p) {
  using Pieces = TilePieces<Form::type>;
  const int64_t strip_bytes = tiles_of(p.cols) * Tile<Form::type>::kBytes;
  const TensorDimension row{Pieces::kBytes / 2, 2, Pieces::kBytes / 2};
  const TensorDimension rows{tiles_of(p.cols) * Pieces::kCount, Pieces::kBytes, Pieces::kCount};
  const TensorDimension experts{p.experts, p.matrix_bytes, 1};
  if (p.up == nullptr) {
    const TensorDimension dimensions[] = {
        row, rows, {strips_of(p.rows), strip_bytes, Form::kTilesAbove}, experts};
    return tensor_map(p.weight, dimensions, BoxLayout::plain);
  }
  const auto distance = static_cast<const char*>(p.up) - static_cast<const char*>(p.weight);
  const TensorDimension dimensions[] = {
      row, rows, {strips_of(p.rows), strip_bytes, Form::kTilesAbove / 2}, {2, distance, 2}, experts};
  return tensor_map(p.weight, dimensions, BoxLayout::plain);
}

template <class Form>
void launch_expert_form(Launch& launch, const MoeProduct& p) {
  using Shared = TileStreamShared<Form>;
  static_assert(sizeof(Shared) <= kStreamBytes);
  const ExpertArgs args = expert_args(p, p.up != nullptr ? Form::kRows / 2 : Form::kRows, kTileCols);
  const TensorDimension x[] = {{kStageColumns, 2, kStageColumns},
                               {p.num_routes, p.x_stride * 2, Form::kTokens},
                               {p.x_stride / kStageColumns, kSliceRowBytes, Form::kXSlices}};
  launch(expert_stream_name(p), tile_stream_kernel<Form, ExpertSchedule<Form::kTokens>>,
         expert_blocks(launch, p, args), dim3(Form::kThreads),
         std::max(sizeof(Shared), kMoreThanHalfOfShared), args, expert_tile_map<Form>(p), tensor_map(p.x, x));
}

template <DType type>
void launch_expert_tiles(Launch& launch, const MoeProduct& p) {
  // Few tokens need more warps to make operands than to multiply.
  for_value(
      ExpertTokenTiles{}, "expert stream by batches of routes", p.groups.batch_routes, [&](auto tokens) {
        launch_expert_form<TileStream<type, tokens, 2, decltype(tokens)::value == 32 ? 2 : 1>>(launch, p);
      });
}

}  // namespace minfer::cuda
