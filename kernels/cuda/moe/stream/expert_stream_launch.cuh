#pragma once

#include <algorithm>

#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/moe/routes/moe_product.h"
#include "kernels/cuda/moe/stream/expert_schedule.cuh"
#include "kernels/cuda/product/stream/stream_launch.cuh"
#include "kernels/cuda/weights/weight_types.h"

namespace minfer::cuda {

/// The numbers of routes of a batch.
using ExpertTokenTiles = Values<32, 64, 128>;

/// out_rows: rows of the output in a tile.
inline ExpertArgs expert_args(const MoeProduct& p, int32_t out_rows, int32_t stage_columns) {
  ExpertArgs args;
  args.output = {.weight = p.weight,
                 .up = p.up,
                 .bias = p.bias,
                 .up_bias = p.up_bias,
                 .activation = p.activation,
                 .out = p.out,
                 .rows = p.rows,
                 .cols = p.cols,
                 .out_stride = p.out_stride,
                 .out_is_f32 = p.out_is_f32};
  args.depth = (p.cols + stage_columns - 1) / stage_columns;
  args.tiles = (p.rows + out_rows - 1) / out_rows;
  args.groups = p.groups;
  return args;
}

inline const char* expert_stream_name(const MoeProduct& p) {
  return p.up != nullptr ? "expert_stream_gate_up" : "expert_stream_product";
}

/// The blocks that may have a tile, for any routes.
inline dim3 expert_blocks(const Launch& launch, const MoeProduct& p, const ExpertArgs& args) {
  const int64_t batches = most_batches(p.num_routes, p.experts, p.groups.batch_routes);
  return {static_cast<unsigned>(std::min<int64_t>(batches * args.tiles, launch.num_sms()))};
}

}  // namespace minfer::cuda
