#pragma once

#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>

#include "kernels/comm/rank.h"
#include "kernels/cuda/comm/all_reduce_path.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

class RankOps;

/// Measures sizes from 8 KiB to 32 MiB, each four times the one before, up to the largest of a step. All ranks
/// call it at the same time. It takes memory for the largest size and gives it back.
AllReduceTable measure_all_reduce(RankOps& ops, Rank rank, cudaStream_t stream, int32_t num_sms,
                                  const StepLimits& limits);

/// E.g. "all-reduce over peer memory, lines up to 64 KiB, never NCCL; us by lines / chunks / NCCL: 8 KiB 5.0 / 6.1 / 12.0, ...".
std::string describe(const AllReduceTable& table, const AllReduceCrossover& crossover);

}  // namespace minfer::cuda
