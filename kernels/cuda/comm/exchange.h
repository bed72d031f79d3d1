#pragma once

#include "kernels/cuda/comm/peer_memory.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/tensor_view.h"

namespace minfer::cuda {

/// Columns [rank x part.cols, ...) of the first rank's `out` = part, both f32. The `out` of other ranks is not
/// touched. Uses memory that the GPUs see of each other.
void gather_columns(Launch& launch, const Channel& channel, const BlockLayout& layout, const Tensor& part,
                    const Tensor& out);
/// The same on the first rank, after the parts of ranks 1, 2, ... have come by other means: [ranks - 1, rows, cols] f32.
void place_columns(Launch& launch, const Tensor& part, const float* others, int32_t ranks, const Tensor& out);
/// Loads the kernel of place_columns(). The driver otherwise loads it at its first launch, which waits on the host for kernels that run: for
/// NCCL's in front of it, and so for other ranks.
void load_place_columns();
/// to = from, both f32.
void copy_rows(Launch& launch, const Tensor& from, const Tensor& to);

/// tokens [rows] = the first rank's, in every rank.
void share_tokens(Launch& launch, const Channel& channel, const BlockLayout& layout, int32_t* tokens,
                  int32_t rows);

}  // namespace minfer::cuda
