#include "kernels/launches.h"

#include <utility>

namespace minfer {

std::string_view name(OccupancyLimiter limiter) {
  static constexpr std::array<std::string_view, 5> kNames{"unknown", "registers", "shared_memory", "threads",
                                                          "blocks"};
  return kNames[static_cast<size_t>(limiter)];
}

int32_t LaunchTable::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int32_t>(launches_.size());
}

std::vector<KernelLaunch> LaunchTable::from(int32_t first) const {
  const std::lock_guard lock(mutex_);
  if (first < 0 || first >= std::ssize(launches_)) return {};
  return {launches_.begin() + first, launches_.end()};
}

int32_t LaunchTable::add(KernelLaunch launch) {
  const std::lock_guard lock(mutex_);
  if (std::ssize(launches_) >= kMost) return -1;
  launches_.push_back(std::move(launch));
  return static_cast<int32_t>(launches_.size()) - 1;
}

}  // namespace minfer
