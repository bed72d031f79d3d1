#pragma once

#include "kernels/cuda/device/block_shared.h"

namespace minfer::cuda {

/// The shared memory of a block of tile_panel.cuh and expert_panel.cuh: all that Hopper has where the build is for nothing else.
#ifdef MINFER_PANEL_SHARED_KIB
inline constexpr int64_t kPanelSharedBytes = int64_t{MINFER_PANEL_SHARED_KIB} << 10;
#else
inline constexpr int64_t kPanelSharedBytes = kNeededSharedBytes;
#endif

}  // namespace minfer::cuda
