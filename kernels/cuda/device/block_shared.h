#pragma once

#include <cstdint>

/// The shared memory that a block may have, for which the kernels that run on every GPU are compiled: they take what there is, since
/// copies under way there are what keeps the memory busy. The build sets it by its GPU targets, to 99 KiB if one of them has no more
/// (compute capability 8.6, 8.9 and 12.x), else to the 163 of 8.0, which 9.0 and 10.x have as well.
#ifndef MINFER_BLOCK_SHARED_KIB
#define MINFER_BLOCK_SHARED_KIB 163
#endif

namespace minfer {

inline constexpr int64_t kNeededSharedBytes = int64_t{MINFER_BLOCK_SHARED_KIB} << 10;
inline constexpr int64_t kLeastSharedBytes = 99 << 10;
/// Kernels have rings and tiles of half the size.
inline constexpr bool kHasSmallBlocks = kNeededSharedBytes < 163 << 10;
static_assert(kNeededSharedBytes >= kLeastSharedBytes,
              "MINFER_BLOCK_SHARED_KIB: less than the kernels can do with");

}  // namespace minfer
