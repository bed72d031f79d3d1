#pragma once

#include <cstdint>

#include "kernels/launches.h"

namespace minfer {

/// The resources of a GPU's multiprocessor.
struct SmLimits {
  int32_t multiprocessors = 0;
  int32_t registers = 0;              ///< 32-bit
  int32_t shared_bytes = 0;           ///< for all its blocks together
  int32_t reserved_shared_bytes = 0;  ///< that the system takes for each block
  int32_t threads = 0;
  int32_t blocks = 0;
};

/// Sets blocks_per_sm, limiter, occupancy and waves of a launch from its sizes and its kernel's resources. Registers, shared
/// memory, threads and the limit of blocks each allow some number of blocks; the first of them that allows the fewest is the
/// limiter. If the driver has already set blocks_per_sm to another number, that is kept and the limiter is unknown. Warps get
/// registers 256 at a time and come in fours; shared memory comes 128 bytes at a time (compute capability 8.0 to 9.0; CUDA C++
/// Programming Guide, "Compute Capabilities").
void set_occupancy(KernelLaunch& launch, const SmLimits& limits);

}  // namespace minfer
