#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// The resource that limits how many blocks of a kernel a multiprocessor holds at a time.
enum class OccupancyLimiter : uint8_t { unknown, registers, shared_memory, threads, blocks };
std::string_view name(OccupancyLimiter limiter);

/// One kind of kernel launch: the properties that stay the same however often it occurs.
struct KernelLaunch {
  std::string kernel;  ///< its name in the source, template arguments included, as in CUPTI and Nsight
  std::string path;    ///< the part of the op that launched it, e.g. "row_product", or "cublasLt"
  std::array<int32_t, 3> grid{};
  std::array<int32_t, 3> block{};
  std::array<int32_t, 3> cluster{1, 1, 1};
  int32_t registers = 0;  ///< of a thread
  int32_t static_shared_bytes = 0;
  int32_t dynamic_shared_bytes = 0;
  int32_t blocks_per_sm = 0;  ///< that fit at a time; 0: not known
  OccupancyLimiter limiter = OccupancyLimiter::unknown;
  double occupancy =
      0.0;             ///< theoretical: threads of blocks_per_sm blocks / threads that a multiprocessor holds
  double waves = 0.0;  ///< blocks / (multiprocessors x blocks_per_sm)
  /// The most bytes of weights or cached keys that it may be reading before its stamp, while the kernel in front runs. That time is
  /// charged to the op in front. 0: it reads nothing ahead.
  int64_t reads_ahead_bytes = 0;

  int64_t num_blocks() const { return int64_t{grid[0]} * grid[1] * grid[2]; }
  int32_t num_threads() const { return block[0] * block[1] * block[2]; }
};

/// All launches that a backend has made, each kind once, in the order of first use; steps name them by
/// index. The table only grows, up to kMost. Any thread may read while the engine thread adds.
class LaunchTable {
 public:
  static constexpr int32_t kMost = 16'384;

  int32_t size() const;
  /// The launches from `first` on.
  std::vector<KernelLaunch> from(int32_t first) const;
  /// Returns the index of the launch; -1 if the table is full.
  int32_t add(KernelLaunch launch);

 private:
  mutable std::mutex mutex_;
  std::vector<KernelLaunch> launches_;
};

}  // namespace minfer
