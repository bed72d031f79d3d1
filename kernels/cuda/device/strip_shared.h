#pragma once

#include "kernels/cuda/device/block_shared.h"

namespace minfer::cuda {

/// The shared memory of a block of tile_strip.cuh and expert_strip.cuh: all that Hopper has if the build is for Hopper alone.
#ifdef MINFER_STRIP_SHARED_KIB
inline constexpr int64_t kStripSharedBytes = int64_t{MINFER_STRIP_SHARED_KIB} << 10;
#else
inline constexpr int64_t kStripSharedBytes = kNeededSharedBytes;
#endif

}  // namespace minfer::cuda
