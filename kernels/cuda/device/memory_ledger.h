#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/memory_use.h"

namespace minfer::cuda {

/// Records who took how much of the devices' memory and of the host's page-locked memory, in this process. Any thread may call it. take(),
/// grow() and parts() are about the calling thread's current device; page-locked memory counts for the device for which it was taken.
class MemoryLedger {
 public:
  static MemoryLedger& of_process();

  void take(const void* data, size_t bytes, std::string_view what, bool on_device);
  void give_back(const void* data);
  /// Notes device memory without a pointer, by the change of the driver's count of free memory.
  void grow(int64_t bytes, std::string_view what);
  /// The parts of the current device, largest first.
  std::vector<MemoryPart> parts() const;

 private:
  struct Key {
    int device;
    bool on_device;
    std::string what;
    auto operator<=>(const Key&) const = default;
  };
  MemoryPart& part(std::string_view what, bool on_device);

  mutable std::mutex mutex_;
  std::map<Key, MemoryPart> parts_;
  std::map<const void*, std::pair<MemoryPart*, int64_t>> taken_;
};

/// Free and total bytes of the current device.
std::pair<int64_t, int64_t> free_and_total_bytes();

}  // namespace minfer::cuda
