#include "kernels/cpu/context/workspace.h"

#include <cstdlib>

#include "kernels/base/error.h"

namespace minfer::cpu {

Workspace::~Workspace() {
  std::free(data_);
}

void* Workspace::take(size_t bytes) {
  if (bytes > capacity_bytes_) {
    std::free(data_);
    capacity_bytes_ = 0;
    data_ = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (data_ == nullptr) fail("workspace of the CPU ops: no memory for {} bytes", bytes);
    capacity_bytes_ = bytes;
  }
  return data_;
}

}  // namespace minfer::cpu
