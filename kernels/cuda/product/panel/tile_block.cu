#include "kernels/cuda/device/block_shared.h"
#include "kernels/cuda/lanes/warp.cuh"
#include "kernels/cuda/product/panel/panel_kernels.h"
#include "kernels/cuda/product/panel/tile_block.cuh"
#include "kernels/cuda/weights/weight_types.h"

namespace minfer::cuda {
namespace {

/// Four lanes a group of 32 columns of a token. grid: (64 groups, tokens).
__global__ void sum_groups_kernel(const __grid_constant__ PanelArgs args, Stamp stamp) {
  allow_next_kernel();
  begin_kernel(stamp);
  const int group = (blockIdx.x * kBlockThreads + threadIdx.x) / 4;
  const int k = 32 * group + threadIdx.x % 4 * 8;
  const int token = blockIdx.y;
  float sum = 0.0f;
  if (k < args.cols && token < args.tokens) {
    const auto* x =
        static_cast<const __nv_bfloat16*>(args.x) + static_cast<int64_t>(token) * args.x_stride + k;
    const uint4 eight = *reinterpret_cast<const uint4*>(x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = word_of(eight, i);
      const float2 two = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
      sum += two.x + two.y;
    }
  }
  sum = group_sum(sum);
  if (threadIdx.x % 4 != 0 || group / 8 >= (args.cols + kTileCols - 1) / kTileCols) return;
  const int64_t row = int64_t{2} * (group / 8) * padded_tokens(args.tokens) + token;
  const __nv_bfloat16 rounded = __float2bfloat16_rn(sum);
  args.x_sums[8 * row + group % 8] = rounded;
  args.x_sums[8 * (row + padded_tokens(args.tokens)) + group % 8] =
      __float2bfloat16_rn(sum - __bfloat162float(rounded));
}

/// That fit into the shared memory of a block.
template <DType type>
constexpr int kMostTokenTiles = !kHasSmallBlocks        ? 8
                                : Tile<type>::kHasBytes ? 2
                                                        : 4;

template <DType type, int kTokenTiles, bool kGateUp>
void launch_tile_block(Launch& launch, const PanelArgs& args, const BlockGrid& grid) {
  static_assert(sizeof(TileBlockShared<type, kTokenTiles>) <= kNeededSharedBytes);
  // A tile a warp. Blocks of other tokens have the same ones.
  const int64_t ahead = int64_t{grid.row_blocks} * grid.splits * kBlockWarps * Tile<type>::kBytes;
  launch.reads_ahead(ahead)(kGateUp ? "block_gate_up" : "block_product",
                            tile_block_kernel<type, kTokenTiles, kGateUp>,
                            dim3(static_cast<unsigned>(grid.token_blocks),
                                 static_cast<unsigned>(grid.row_blocks), static_cast<unsigned>(grid.splits)),
                            kBlockThreads, sizeof(TileBlockShared<type, kTokenTiles>), args);
}

template <DType type>
void run(Launch& launch, const PanelArgs& args) {
  const bool gate_up = args.up != nullptr;
  constexpr int kMost = kMostTokenTiles<type>, kFewer = kMost == 2 ? 2 : 4;
  const BlockGrid grid = block_grid(args.rows, args.cols, args.tokens, gate_up, launch.num_sms(), kMost);
  if constexpr (Tile<type>::kHasMinima) {
    const int64_t groups = tiles_of(args.cols) * 8;
    launch("sum_groups", sum_groups_kernel,
           dim3(static_cast<unsigned>((groups + 63) / 64), static_cast<unsigned>(padded_tokens(args.tokens))),
           kBlockThreads, 0, args);
  }
  if (grid.token_tiles == kFewer) {
    gate_up ? launch_tile_block<type, kFewer, true>(launch, args, grid)
            : launch_tile_block<type, kFewer, false>(launch, args, grid);
  } else {
    gate_up ? launch_tile_block<type, kMost, true>(launch, args, grid)
            : launch_tile_block<type, kMost, false>(launch, args, grid);
  }
}

}  // namespace

void tile_block_product(Launch& launch, DType type, const PanelArgs& args) {
  for_type(CommonTypes{}, "tile_block_product", type, [&](auto known) { run<known>(launch, args); });
}

}  // namespace minfer::cuda
