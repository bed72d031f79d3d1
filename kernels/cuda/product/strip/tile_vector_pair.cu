#include "kernels/cuda/product/strip/strip_division.h"
#include "kernels/cuda/product/strip/strip_kernels.h"
#include "kernels/cuda/product/strip/tile_vector.cuh"

/// Two matrices of different types times one token in one launch: some blocks take strips of one matrix, the others of
/// the other. Alone, the smaller matrix would leave multiprocessors idle, and each launch costs its begin and its end.
namespace minfer::cuda {
namespace {

template <DType type, bool kNorm>
using VectorShared = StripShared<TileVectorMultiplier<type, kNorm>, 1>;

template <DType one, DType other, bool kNorm>
__global__ void __launch_bounds__(kVectorWarps * 32, 1)
    strip_pair_kernel(const __grid_constant__ ProductArgs first, const __grid_constant__ ProductArgs second,
                      int blocks_of_one, Stamp stamp) {
  extern __shared__ __align__(128) char shared_bytes[];
  const auto block = static_cast<int>(blockIdx.x);
  if (block < blocks_of_one) {
    run_strips<TileVectorMultiplier<one, kNorm>, 1>(first, shared_bytes, block, blocks_of_one, stamp);
  } else {
    run_strips<TileVectorMultiplier<other, kNorm>, 1>(second, shared_bytes, block - blocks_of_one,
                                                      static_cast<int>(gridDim.x) - blocks_of_one, stamp);
  }
}

template <DType one, DType other, bool kNorm>
void launch_pair(Launch& launch, ProductArgs first, ProductArgs second) {
  const StripLoad load = strip_load(one, first.rows, first.cols),
                  other_load = strip_load(other, second.rows, second.cols);
  const auto blocks =
      static_cast<int32_t>(std::min<int64_t>(load.strips + other_load.strips, launch.num_sms()));
  const int32_t of_first = blocks_of_first(load, other_load, blocks);
  const size_t shared_bytes = std::max(strip_shared_bytes<TileVectorMultiplier<one, kNorm>, 1>(first),
                                       strip_shared_bytes<TileVectorMultiplier<other, kNorm>, 1>(second));
  launch.reads_ahead(int64_t{of_first} * static_cast<int64_t>(sizeof(VectorShared<one, kNorm>::rings)) +
                     int64_t{blocks - of_first} *
                         static_cast<int64_t>(sizeof(VectorShared<other, kNorm>::rings)))(
      "strip_pair", strip_pair_kernel<one, other, kNorm>, static_cast<unsigned>(blocks), kVectorWarps * 32,
      shared_bytes, first, second, of_first);
}

template <DType one>
void launch_with_q6_k(Launch& launch, const ProductArgs& first, const ProductArgs& second) {
  first.norm != nullptr ? launch_pair<one, DType::q6_k, true>(launch, first, second)
                        : launch_pair<one, DType::q6_k, false>(launch, first, second);
}

}  // namespace

bool tile_vector_pair(Launch& launch, DType type, const ProductArgs& first, DType other,
                      const ProductArgs& second) {
  if (other != DType::q6_k || launch.num_sms() < 2) return false;
  if (type == DType::q4_k) {
    launch_with_q6_k<DType::q4_k>(launch, first, second);
  } else if (type == DType::q5_k) {
    launch_with_q6_k<DType::q5_k>(launch, first, second);
  } else {
    return false;
  }
  return true;
}

}  // namespace minfer::cuda
