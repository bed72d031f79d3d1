#include "kernels/cuda/moe/stream/expert_stream_kernels.h"
#include "kernels/cuda/moe/stream/expert_stream_launch.cuh"

namespace minfer::cuda {

template <class Tile, int kTokens>
__device__ __forceinline__ void copy_rows(void* to, const CUtensorMap& map, SharedBarrier& barrier,
                                          uint64_t policy, const ExpertSegment<kTokens>& segment,
                                          int32_t column) {
  if constexpr (Tile::kGateUp) {
    copy_box(to, map, barrier, policy, column, 0, 0, segment.tile * (Tile::kOutRows / 8), segment.expert);
  } else {
    copy_box(to, map, barrier, policy, column, segment.tile * Tile::kRows, segment.expert);
  }
}

namespace {

template <class Tile>
CUtensorMap expert_weight_map(const MoeProduct& p) {
  const int64_t row_bytes = int64_t{p.cols} * 2;
  const TensorDimension experts{p.experts, p.matrix_bytes, 1};
  if constexpr (Tile::kGateUp) {
    const auto distance = static_cast<const char*>(p.up) - static_cast<const char*>(p.weight);
    const TensorDimension dimensions[] = {{p.cols, 2, kStageColumns},
                                          {8, row_bytes, 8},
                                          {2, distance, 2},
                                          {p.rows / 8, 8 * row_bytes, Tile::kOutRows / 8},
                                          experts};
    return tensor_map(p.weight, dimensions);
  } else {
    const TensorDimension dimensions[] = {
        {p.cols, 2, kStageColumns}, {p.rows, row_bytes, Tile::kRows}, experts};
    return tensor_map(p.weight, dimensions);
  }
}

template <class Tile>
void launch_expert_stream(Launch& launch, const MoeProduct& p) {
  using Shared = StreamShared<Tile>;
  static_assert(sizeof(Shared) <= Tile::kSharedBytes);
  const ExpertArgs args = expert_args(p, Tile::kOutRows, kStageColumns);
  const TensorDimension x[] = {{p.cols, 2, kStageColumns}, {p.num_routes, p.x_stride * 2, Tile::kTokens}};
  launch(expert_stream_name(p), stream_product_kernel<Tile, ExpertSchedule<Tile::kTokens>>,
         expert_blocks(launch, p, args), dim3(Tile::kThreads),
         std::max(sizeof(Shared), kMoreThanHalfOfShared), args, expert_weight_map<Tile>(p),
         tensor_map(p.x, x));
}

}  // namespace

void launch_bf16_experts(Launch& launch, const MoeProduct& p) {
  for_value(ExpertTokenTiles{}, "expert stream by batches of routes", p.groups.batch_routes,
            [&](auto tokens) {
              p.up != nullptr ? launch_expert_stream<StreamTile<tokens, 2, true>>(launch, p)
                              : launch_expert_stream<StreamTile<tokens, 2, false>>(launch, p);
            });
}

}  // namespace minfer::cuda
