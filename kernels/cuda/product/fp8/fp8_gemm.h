#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cuda/product/fp8/fp8_stream_kernels.h"

namespace minfer::cuda {

inline constexpr int32_t kGemmRows =
    128;  ///< of weights, of a block's tile: of gate and up half of them each
inline constexpr int32_t kGemmBlocks = 2;  ///< of a cluster, with the same tokens

/// How fp8_gemm() divides a product: a cluster's tiles of 64 tokens a warpgroup and 256 rows of weights, in turn.
struct Fp8GemmPlan {
  int32_t warpgroups = 3;  ///< that multiply: 2 or 3
  int32_t clusters = 1;
};

/// Whether it takes such a product, and is faster than fp8_stream.cuh. `rows`: of the output; with gate_up as many of each.
constexpr bool is_worth_fp8_gemm(int64_t rows, int64_t cols, int64_t tokens, bool gate_up) {
  constexpr int64_t kClusterRows = int64_t{kGemmRows} * kGemmBlocks, kFewTokens = 128;
  return tokens > kFewTokens && rows % (gate_up ? kClusterRows / 2 : kClusterRows) == 0 &&
         cols % kFp8Columns == 0;
}

inline Fp8GemmPlan fp8_gemm_plan(int64_t rows, int64_t tokens, bool gate_up, int32_t num_sms) {
  // Clock cycles that a tile of so many warpgroups takes for 128 columns.
  constexpr int64_t kCycles[] = {0, 0, 600, 850};
  const int64_t row_tiles = (gate_up ? 2 * rows : rows) / (kGemmRows * kGemmBlocks);
  const int64_t most_clusters = num_sms / kGemmBlocks;
  const auto rounds_of = [&](int64_t warpgroups) {
    const int64_t token_tile = 64 * warpgroups;
    const int64_t units = row_tiles * ((tokens + token_tile - 1) / token_tile);
    return std::pair{units, (units + most_clusters - 1) / most_clusters};
  };
  Fp8GemmPlan plan;
  plan.warpgroups = rounds_of(2).second * kCycles[2] < rounds_of(3).second * kCycles[3] ? 2 : 3;
  const auto [units, rounds] = rounds_of(plan.warpgroups);
  plan.clusters = static_cast<int32_t>((units + rounds - 1) / rounds);
  return plan;
}

/// See fp8_gemm.cuh. Rows and columns as is_worth_fp8_gemm() asks; gate and up to product.out. Instantiated by kernels/cuda/instances.cmake.
template <bool kGateUp>
void fp8_gemm(Launch& launch, const Fp8Product& product, const Fp8GemmPlan& plan);

}  // namespace minfer::cuda
