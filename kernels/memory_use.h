#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace minfer {

/// Memory that a backend took for one purpose.
struct MemoryPart {
  std::string what;  ///< e.g. "weights", "KV cache"
  int64_t bytes = 0;
  int64_t most_bytes = 0;  ///< the most at any time
  bool on_device = true;   ///< false: page-locked memory of the host
};

/// A device's memory as its driver counts it, for all programs together, and this program's parts of it.
struct MemoryUse {
  int64_t total_bytes = 0;  ///< 0: the backend has no memory of its own
  int64_t used_bytes = 0;
  int64_t used_before_bytes =
      0;  ///< at the time when the backend was made: the driver's context, and other programs
  std::vector<MemoryPart> parts;

  /// Memory that no part explains: code of kernels, the driver's rounding, memory that other programs have taken since.
  int64_t unexplained_bytes() const {
    int64_t known = used_before_bytes;
    for (const MemoryPart& part : parts)
      known += part.on_device ? part.bytes : 0;
    return used_bytes - known;
  }
};

}  // namespace minfer
