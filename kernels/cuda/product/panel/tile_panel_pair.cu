#include "kernels/cuda/product/panel/panel_kernels.h"
#include "kernels/cuda/product/panel/tile_panel.cuh"

/// Two matrices of different types past 2 to 8 tokens in one launch, as tile_vector_pair.cu.
namespace minfer::cuda {
namespace {

template <DType one, DType other>
__global__ void __launch_bounds__(TilePanel<one, 1>::kWarps * 32, 1)
    tile_panel_pair_kernel(const __grid_constant__ PanelArgs first, const __grid_constant__ PanelArgs second,
                           const __grid_constant__ TilePanelDivision of_first,
                           const __grid_constant__ TilePanelDivision of_second, Stamp stamp) {
  extern __shared__ __align__(128) char shared_bytes[];
  const auto block = static_cast<int>(blockIdx.x);
  if (block < of_first.clusters) {
    run_tile_panels<one, 1>(first, of_first, shared_bytes, block, stamp);
  } else {
    run_tile_panels<other, 1>(second, of_second, shared_bytes, block - of_first.clusters, stamp);
  }
}

template <DType one, DType other>
bool launch_pair(Launch& launch, const PanelArgs& first, const PanelArgs& second) {
  using Shared = typename TilePanel<one, 1>::Shared;
  using OtherShared = typename TilePanel<other, 1>::Shared;
  const auto division_of = [&](const PanelArgs& args) {
    return tile_panel_division(panels_of(args.rows), tiles_of(args.cols), TilePanel<one, 1>::kWarps,
                               launch.num_sms(), launches_start_early());
  };
  TilePanelDivision of_first = division_of(first), of_second = division_of(second);
  if (of_first.splits > 1 || of_second.splits > 1 || of_first.warps != of_second.warps) return false;
  const PanelLoad load = panel_load(one, first.rows, first.cols),
                  other_load = panel_load(other, second.rows, second.cols);
  const auto blocks =
      static_cast<int32_t>(std::min<int64_t>(load.panels + other_load.panels, launch.num_sms()));
  of_first.clusters = blocks_of_first(load, other_load, blocks);
  of_second.clusters = blocks - of_first.clusters;
  launch.reads_ahead(of_first.clusters * static_cast<int64_t>(sizeof(Shared::rings)) +
                     of_second.clusters * static_cast<int64_t>(sizeof(OtherShared::rings)))(
      "panel_pair", tile_panel_pair_kernel<one, other>, static_cast<unsigned>(blocks),
      static_cast<unsigned>(32 * of_first.warps * of_first.sets),
      std::max(sizeof(Shared), sizeof(OtherShared)), first, second, of_first, of_second);
  return true;
}

}  // namespace

bool tile_panel_pair(Launch& launch, DType type, const PanelArgs& first, DType other,
                     const PanelArgs& second) {
  if (other != DType::q6_k || launch.num_sms() < 2) return false;
  if (type == DType::q4_k) return launch_pair<DType::q4_k, DType::q6_k>(launch, first, second);
  if (type == DType::q5_k) return launch_pair<DType::q5_k, DType::q6_k>(launch, first, second);
  return false;
}

}  // namespace minfer::cuda
