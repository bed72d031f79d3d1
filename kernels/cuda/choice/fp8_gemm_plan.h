#pragma once

#include <cstdint>

#include "kernels/cuda/device/fp8_activations.h"

namespace minfer::cuda {

inline constexpr int32_t kGemmRows =
    128;  ///< of weights in a block's tile; for gate and up, half of them each
inline constexpr int32_t kGemmBlocks = 2;  ///< of a cluster; they have the same tokens

/// Divides a product of fp8_gemm(): a cluster takes tiles of 64 tokens a warpgroup and 256 rows of weights in turn.
struct Fp8GemmPlan {
  int32_t warpgroups = 3;  ///< that multiply: 2 or 3
  int32_t clusters = 1;
  int64_t rounds = 1;  ///< tiles of the cluster that has most
};

/// Clock cycles that a tile of two or three warpgroups takes for kFp8Columns columns.
constexpr int64_t fp8_gemm_cycles(int32_t warpgroups) {
  return warpgroups == 2 ? 600 : 850;
}

inline Fp8GemmPlan fp8_gemm_plan(int64_t rows, int64_t tokens, bool gate_up, int32_t num_sms) {
  const int64_t row_tiles = (gate_up ? 2 * rows : rows) / (kGemmRows * kGemmBlocks);
  const int64_t most_clusters = num_sms / kGemmBlocks;
  const auto plan_of = [&](int32_t warpgroups) {
    const int64_t token_tile = int64_t{64} * warpgroups;
    const int64_t units = row_tiles * ((tokens + token_tile - 1) / token_tile);
    const int64_t rounds = (units + most_clusters - 1) / most_clusters;
    return Fp8GemmPlan{warpgroups, static_cast<int32_t>((units + rounds - 1) / rounds), rounds};
  };
  const Fp8GemmPlan two = plan_of(2), three = plan_of(3);
  return two.rounds * fp8_gemm_cycles(2) < three.rounds * fp8_gemm_cycles(3) ? two : three;
}

}  // namespace minfer::cuda
