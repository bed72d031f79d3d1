#include "kernels/cuda/product/strip/strip_kernels.h"
#include "kernels/cuda/product/strip/tile_strip.cuh"

/// Two matrices of different types times 2 to 8 tokens in one launch, like tile_vector_pair.cu.
namespace minfer::cuda {
namespace {

template <DType one, DType other>
__global__ void __launch_bounds__(TileStrip<one, 1>::kWarps * 32, 1)
    tile_strip_pair_kernel(const __grid_constant__ ProductArgs first,
                           const __grid_constant__ ProductArgs second,
                           const __grid_constant__ TileStripDivision of_first,
                           const __grid_constant__ TileStripDivision of_second, Stamp stamp) {
  extern __shared__ __align__(128) char shared_bytes[];
  const auto block = static_cast<int>(blockIdx.x);
  if (block < of_first.clusters) {
    run_tile_strips<one, 1>(first, of_first, shared_bytes, block, stamp);
  } else {
    run_tile_strips<other, 1>(second, of_second, shared_bytes, block - of_first.clusters, stamp);
  }
}

template <DType one, DType other>
bool launch_pair(Launch& launch, const ProductArgs& first, const ProductArgs& second) {
  using Shared = typename TileStrip<one, 1>::Shared;
  using OtherShared = typename TileStrip<other, 1>::Shared;
  const auto division_of = [&](const ProductArgs& args) {
    return tile_strip_division(strips_of(args.rows), tiles_of(args.cols), TileStrip<one, 1>::kWarps,
                               launch.num_sms(), launches_start_early());
  };
  TileStripDivision of_first = division_of(first), of_second = division_of(second);
  if (of_first.splits > 1 || of_second.splits > 1 || of_first.warps != of_second.warps) return false;
  const StripLoad load = strip_load(one, first.rows, first.cols),
                  other_load = strip_load(other, second.rows, second.cols);
  const auto blocks =
      static_cast<int32_t>(std::min<int64_t>(load.strips + other_load.strips, launch.num_sms()));
  of_first.clusters = blocks_of_first(load, other_load, blocks);
  of_second.clusters = blocks - of_first.clusters;
  launch.reads_ahead(of_first.clusters * static_cast<int64_t>(sizeof(Shared::rings)) +
                     of_second.clusters * static_cast<int64_t>(sizeof(OtherShared::rings)))(
      "strip_pair", tile_strip_pair_kernel<one, other>, static_cast<unsigned>(blocks),
      static_cast<unsigned>(32 * of_first.warps * of_first.sets),
      std::max(sizeof(Shared), sizeof(OtherShared)), first, second, of_first, of_second);
  return true;
}

}  // namespace

bool tile_strip_pair(Launch& launch, DType type, const ProductArgs& first, DType other,
                     const ProductArgs& second) {
  if (other != DType::q6_k || launch.num_sms() < 2) return false;
  if (type == DType::q4_k) return launch_pair<DType::q4_k, DType::q6_k>(launch, first, second);
  if (type == DType::q5_k) return launch_pair<DType::q5_k, DType::q6_k>(launch, first, second);
  return false;
}

}  // namespace minfer::cuda
