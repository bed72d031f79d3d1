#include "kernels/cuda/device/memory_ledger.h"

#include <algorithm>

#include <cuda_runtime_api.h>

#include "kernels/cuda/device/check.h"

namespace minfer::cuda {
namespace {

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  return device;
}

}  // namespace

MemoryLedger& MemoryLedger::of_process() {
  static MemoryLedger ledger;
  return ledger;
}

MemoryPart& MemoryLedger::part(std::string_view what, bool on_device) {
  MemoryPart& part = parts_[{current_device(), on_device, std::string(what)}];
  part.what = what;
  part.on_device = on_device;
  return part;
}

void MemoryLedger::take(const void* data, size_t bytes, std::string_view what, bool on_device) {
  const std::lock_guard lock(mutex_);
  MemoryPart& taker = part(what, on_device);
  taker.bytes += static_cast<int64_t>(bytes);
  taker.most_bytes = std::max(taker.most_bytes, taker.bytes);
  taken_[data] = {&taker, static_cast<int64_t>(bytes)};
}

void MemoryLedger::give_back(const void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(data);
  if (found == taken_.end()) return;
  found->second.first->bytes -= found->second.second;
  taken_.erase(found);
}

void MemoryLedger::grow(int64_t bytes, std::string_view what) {
  const std::lock_guard lock(mutex_);
  MemoryPart& taker = part(what, true);
  taker.bytes = std::max<int64_t>(0, taker.bytes + bytes);
  taker.most_bytes = std::max(taker.most_bytes, taker.bytes);
}

std::vector<MemoryPart> MemoryLedger::parts() const {
  std::vector<MemoryPart> parts;
  {
    const std::lock_guard lock(mutex_);
    const int device = current_device();
    for (const auto& [key, part] : parts_) {
      if (key.device == device) parts.push_back(part);
    }
  }
  std::ranges::stable_sort(parts, std::ranges::greater{}, &MemoryPart::bytes);
  return parts;
}

std::pair<int64_t, int64_t> free_and_total_bytes() {
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free memory");
  return {static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
}

}  // namespace minfer::cuda
