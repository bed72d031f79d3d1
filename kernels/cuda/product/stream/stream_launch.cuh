#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/product/stream/stream_kernels.h"
#include "kernels/cuda/product/stream/stream_product.cuh"
#include "kernels/cuda/weights/weight_types.h"

namespace minfer::cuda {

/// Tokens of a tile: up to 128 or 256.
template <bool kTo256>
using TokenTiles = std::conditional_t<kTo256, Values<8, 16, 32, 64, 128, 192, kMostTokensOfTile>,
                                      Values<8, 16, 32, 64, 128>>;

/// A block takes more than half of an SM's shared memory, so that every SM has one block of a product.
inline constexpr size_t kMoreThanHalfOfShared = 115 << 10;

template <class Tile>
CUtensorMap stream_weight_map(const ProductArgs& args) {
  const int64_t row_bytes = int64_t{args.cols} * 2;
  if constexpr (Tile::kGateUp) {
    const auto distance = static_cast<const char*>(args.up) - static_cast<const char*>(args.weight);
    const TensorDimension dimensions[] = {{args.cols, 2, 64},
                                          {8, row_bytes, 8},
                                          {2, distance, 2},
                                          {args.rows / 8, 8 * row_bytes, Tile::kOutRows / 8}};
    return tensor_map(args.weight, dimensions);
  } else {
    const TensorDimension dimensions[] = {{args.cols, 2, 64}, {args.rows, row_bytes, Tile::kRows}};
    return tensor_map(args.weight, dimensions);
  }
}

template <class Tile>
void launch_stream(Launch& launch, const ProductArgs& args, const StreamPlan& plan) {
  using Shared = StreamShared<Tile>;
  static_assert(sizeof(Shared) <= Tile::kSharedBytes);
  const StreamArgs stream{.output = args,
                          .depth = (args.cols + kStageColumns - 1) / kStageColumns,
                          .tiles = (args.rows + Tile::kOutRows - 1) / Tile::kOutRows,
                          .token_blocks = (args.tokens + Tile::kTokens - 1) / Tile::kTokens,
                          .splits = plan.splits,
                          .by_rounds = plan.by_rounds,

                          .partials = reinterpret_cast<float4*>(args.partials),
                          .arrivals = args.arrivals};
  const TensorDimension x[] = {{args.cols, 2, 64}, {args.tokens, int64_t{args.x_stride} * 2, Tile::kTokens}};
  launch.reads_ahead(int64_t{plan.blocks} * Tile::kStages * Tile::kWeightBytes)
      .in_clusters(plan.splits)(Tile::kGateUp ? "stream_gate_up" : "stream_product",
                                stream_product_kernel<Tile, StreamSchedule>,
                                dim3(static_cast<unsigned>(plan.blocks)), dim3(Tile::kThreads),
                                std::max(sizeof(Shared), kMoreThanHalfOfShared), stream,
                                stream_weight_map<Tile>(args), tensor_map(args.x, x));
}

template <int kWarpgroups, bool kGateUp>
void launch_stream_of(Launch& launch, const ProductArgs& args, const StreamPlan& plan) {
  for_value(
      TokenTiles<kWarpgroups == 2>{}, "stream product by tiles of tokens", plan.token_tile,
      [&](auto tokens) { launch_stream<StreamTile<tokens, kWarpgroups, kGateUp>>(launch, args, plan); });
}

}  // namespace minfer::cuda
