#pragma once

#include <cstdint>

/// The shared memory of a block for which the kernels that run on every GPU are compiled. They use all of it,
/// since copies in flight to it keep the device's memory busy. The build sets it by its GPU targets: 99 KiB if
/// one has no more (compute capability 8.6, 8.9 and 12.x), else the 163 KiB of 8.0, which 9.0 and 10.x have too.
#ifndef MINFER_BLOCK_SHARED_KIB
#define MINFER_BLOCK_SHARED_KIB 163
#endif

namespace minfer {

inline constexpr int64_t kNeededSharedBytes = int64_t{MINFER_BLOCK_SHARED_KIB} << 10;
inline constexpr int64_t kLeastSharedBytes = 99 << 10;
/// Kernels then have rings and tiles of half the size.
inline constexpr bool kHasSmallBlocks = kNeededSharedBytes < 163 << 10;
static_assert(kNeededSharedBytes >= kLeastSharedBytes,
              "MINFER_BLOCK_SHARED_KIB: less than the kernels can do with");

}  // namespace minfer
