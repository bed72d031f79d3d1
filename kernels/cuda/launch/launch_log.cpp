#include "kernels/cuda/launch/launch_log.h"

#include <array>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/launch/kernel_name.h"

namespace minfer::cuda {
namespace {

std::array<int32_t, 3> sizes_of(dim3 size) {
  return {static_cast<int32_t>(size.x), static_cast<int32_t>(size.y), static_cast<int32_t>(size.z)};
}

bool same(dim3 a, dim3 b) {
  return a.x == b.x && a.y == b.y && a.z == b.z;
}

KernelLaunch describe(const char* path, const void* kernel, dim3 grid, dim3 block,
                      size_t dynamic_shared_bytes) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), path);
  const char* symbol = nullptr;
  check(cudaFuncGetName(&symbol, kernel), path);
  KernelLaunch launch;
  launch.kernel = kernel_name(symbol);
  launch.path = path;
  launch.grid = sizes_of(grid);
  launch.block = sizes_of(block);
  launch.registers = attributes.numRegs;
  launch.static_shared_bytes = static_cast<int32_t>(attributes.sharedSizeBytes);
  launch.dynamic_shared_bytes = static_cast<int32_t>(dynamic_shared_bytes);
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&launch.blocks_per_sm, kernel, launch.num_threads(),
                                                      dynamic_shared_bytes),
        path);
  return launch;
}

}  // namespace

bool LaunchLog::Key::operator==(const Key& other) const {
  return kernel == other.kernel && same(grid, other.grid) && same(block, other.block) &&
         dynamic_shared_bytes == other.dynamic_shared_bytes;
}

size_t LaunchLog::Hash::operator()(const Key& key) const {
  uint64_t hash = reinterpret_cast<uintptr_t>(key.kernel);
  for (const uint64_t part :
       {uint64_t{key.grid.x}, uint64_t{key.grid.y}, uint64_t{key.grid.z}, uint64_t{key.block.x},
        uint64_t{key.block.y}, uint64_t{key.dynamic_shared_bytes}})
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 32;
}

void LaunchLog::clear() {
  runs_.clear();
  launches_.clear();
}

void LaunchLog::note_launch() {
  if (runs_.back().launched_ns == 0) runs_.back().launched_ns = now_ns();
}

void LaunchLog::add(const char* path, const void* kernel, dim3 grid, dim3 block, size_t dynamic_shared_bytes,
                    int64_t reads_ahead_bytes) {
  note_launch();
  const Key key{kernel, grid, block, dynamic_shared_bytes};
  auto found = indices_.find(key);
  if (found == indices_.end() && indices_.size() < LaunchTable::kMost) {
    KernelLaunch launch = describe(path, kernel, grid, block, dynamic_shared_bytes);
    launch.reads_ahead_bytes = has_early_starts_ ? reads_ahead_bytes : 0;
    const int32_t index = enter(std::move(launch));
    found = indices_.emplace(key, index).first;
  }
  launches_.push_back(found == indices_.end() ? -1 : found->second);
  ++runs_.back().num_launches;
}

void LaunchLog::add(std::span<const int32_t> launches) {
  note_launch();
  launches_.insert(launches_.end(), launches.begin(), launches.end());
  runs_.back().num_launches += static_cast<int32_t>(launches.size());
}

int32_t LaunchLog::enter(KernelLaunch launch) {
  set_occupancy(launch, limits_);
  return table_.add(std::move(launch));
}

}  // namespace minfer::cuda
