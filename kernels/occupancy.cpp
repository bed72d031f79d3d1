#include "kernels/occupancy.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace minfer {
namespace {

constexpr int32_t kWarpThreads = 32;
constexpr int32_t kRegisterUnit = 256;  // of a warp
constexpr int32_t kWarpUnit = 4;        // one warp for each of a multiprocessor's schedulers
constexpr int32_t kSharedUnit = 128;    // bytes

int32_t rounded_up(int32_t value, int32_t unit) {
  return (value + unit - 1) / unit * unit;
}

int32_t blocks_by_registers(const KernelLaunch& launch, const SmLimits& limits, int32_t warps) {
  if (launch.registers <= 0) return std::numeric_limits<int32_t>::max();
  const int32_t of_warp = rounded_up(launch.registers * kWarpThreads, kRegisterUnit);
  const int32_t fitting = limits.registers / of_warp / kWarpUnit * kWarpUnit;
  return fitting / warps;
}

int32_t blocks_by_shared_memory(const KernelLaunch& launch, const SmLimits& limits) {
  const int32_t of_block = rounded_up(
      launch.static_shared_bytes + launch.dynamic_shared_bytes + limits.reserved_shared_bytes, kSharedUnit);
  return of_block > 0 ? limits.shared_bytes / of_block : std::numeric_limits<int32_t>::max();
}

}  // namespace

void set_occupancy(KernelLaunch& launch, const SmLimits& limits) {
  const int32_t warps = rounded_up(launch.num_threads(), kWarpThreads) / kWarpThreads;
  if (warps == 0 || limits.threads == 0) return;
  const std::array<std::pair<OccupancyLimiter, int32_t>, 4> most{
      {{OccupancyLimiter::registers, blocks_by_registers(launch, limits, warps)},
       {OccupancyLimiter::shared_memory, blocks_by_shared_memory(launch, limits)},
       {OccupancyLimiter::threads, limits.threads / (warps * kWarpThreads)},
       {OccupancyLimiter::blocks, limits.blocks}}};
  const auto [limiter, blocks] =
      *std::ranges::min_element(most, {}, &std::pair<OccupancyLimiter, int32_t>::second);
  const bool is_told = launch.blocks_per_sm > 0;
  if (!is_told) launch.blocks_per_sm = blocks;
  launch.limiter = launch.blocks_per_sm == blocks ? limiter : OccupancyLimiter::unknown;
  launch.occupancy = static_cast<double>(launch.blocks_per_sm * warps * kWarpThreads) / limits.threads;
  const double places = static_cast<double>(limits.multiprocessors) * launch.blocks_per_sm;
  launch.waves = places > 0.0 ? static_cast<double>(launch.num_blocks()) / places : 0.0;
}

}  // namespace minfer
