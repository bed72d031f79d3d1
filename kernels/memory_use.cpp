#include "kernels/memory_use.h"

namespace minfer {

int64_t MemoryUse::unexplained_bytes() const {
  int64_t known = used_before_bytes;
  for (const MemoryPart& part : parts)
    known += part.on_device ? part.bytes : 0;
  return used_bytes - known;
}

}  // namespace minfer
