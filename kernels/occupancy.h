#pragma once

#include <cstdint>

#include "kernels/launches.h"

namespace minfer {

/// What a multiprocessor of a GPU holds.
struct SmLimits {
  int32_t multiprocessors = 0;
  int32_t registers = 0;              ///< 32-bit
  int32_t shared_bytes = 0;           ///< for all its blocks together
  int32_t reserved_shared_bytes = 0;  ///< that the system takes of it for each block
  int32_t threads = 0;
  int32_t blocks = 0;
};

/// Sets blocks_per_sm, limiter, occupancy and waves of a launch from its sizes and its kernel's resources: as many blocks as
/// registers, shared memory, threads and the limit of blocks allow, where the first of these that allows fewest is the limiter. If
/// blocks_per_sm is set already, by the driver, and it is another, that is taken and the limiter is unknown.
/// Registers are given to warps 256 at a time and warps come in fours, shared memory comes 128 bytes at a time (compute
/// capability 8.0 to 9.0; CUDA C++ Programming Guide, "Compute Capabilities").
void set_occupancy(KernelLaunch& launch, const SmLimits& limits);

}  // namespace minfer
