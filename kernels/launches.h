#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// What limits how many blocks of a kernel are on a multiprocessor at a time.
enum class OccupancyLimiter : uint8_t { unknown, registers, shared_memory, threads, blocks };
std::string_view name(OccupancyLimiter limiter);

/// A way in which a kernel is launched: what stays the same however often it is.
struct KernelLaunch {
  std::string kernel;  ///< its name in the source, template arguments included: as CUPTI and Nsight show it
  std::string path;    ///< what launched it: the op's part, e.g. "row_product", or "cublasLt"
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
  /// Of weights or cached keys that it may have on their way before its stamp, while the kernel in front runs: at the most. That time
  /// is charged to the op in front. 0: it reads nothing ahead.
  int64_t reads_ahead_bytes = 0;

  int64_t num_blocks() const { return int64_t{grid[0]} * grid[1] * grid[2]; }
  int32_t num_threads() const { return block[0] * block[1] * block[2]; }
};

/// Every launch that a backend has made, each kind of it once, in the order of first use: steps name them by
/// index. Only grows, up to kMost. Any thread may read while the engine thread adds.
class LaunchTable {
 public:
  static constexpr int32_t kMost = 16'384;

  int32_t size() const;
  /// Those from `first` on.
  std::vector<KernelLaunch> from(int32_t first) const;
  /// Its index; -1 if the table is full.
  int32_t add(KernelLaunch launch);

 private:
  mutable std::mutex mutex_;
  std::vector<KernelLaunch> launches_;
};

}  // namespace minfer
