#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/op.h"

namespace minfer {

/// What one step's ops did on the device, in the order they ran. The interval of an op runs from its begin to the next one's (the
/// last to `end_ns`), so the intervals add up to the step's device time exactly; what the device idled between two ops is part of
/// the first one's. Owned by the engine and filled by the backend on the engine thread; reused over steps without allocating.
struct StepStamps {
  /// From the end of a kernel to the begin of one that is launched right behind it (an H200: 0.5 to 1.3 us).
  static constexpr int64_t kLaunchNs = 1'000;

  struct Stamp {
    OpId op = -1;
    /// Of an op between ranks: from its begin until all of them had come, two seconds at the most; 0: not known.
    int32_t waited_ns = 0;
    int64_t begin_ns = 0;  ///< see add()
    /// When the host had launched its first kernel; 0: a graph launched it, or there are no launches.
    int64_t launched_ns = 0;
    int64_t end_ns = 0;        ///< of its last kernel; 0: not stamped
    int32_t num_launches = 0;  ///< kernels that it launched
    /// Of a product of experts: how many of them at least one of the step's tokens chose, so that were read. -1: not known.
    int32_t experts_read = -1;
  };
  std::vector<Stamp> ops;
  std::vector<int32_t>
      launches;  ///< of all ops one behind the other: indices into Backend::launches(), or -1
  int64_t end_ns = 0;
  /// When the host had waited for the device to finish the step; 0: it did not wait, the ops ran on the host.
  int64_t waited_until_ns = 0;
  /// What was added to the device's own clock to give the times above: the two move against each other.
  int64_t clock_offset_ns = 0;

  /// Splits what `stamp` launched off the front of `rest`: of its launches and those of all later ops. Less if there are fewer.
  static std::span<const int32_t> take_launches(const Stamp& stamp, std::span<const int32_t>& rest) {
    const std::span<const int32_t> taken =
        rest.first(std::min(rest.size(), static_cast<size_t>(std::max(0, stamp.num_launches))));
    rest = rest.subspan(taken.size());
    return taken;
  }
  /// Adds the next op as it was stamped; begin_ns 0: it was not, as its kernel is a library's. In a graph nothing comes between two
  /// ops, so one that stamped late, when it had read ahead, began right behind the end of the one in front all the same.
  void add(Stamp stamp) {
    if (!ops.empty()) {
      const Stamp& front = ops.back();
      const int64_t next_ns = front.end_ns + kLaunchNs;
      if (stamp.begin_ns == 0 || (stamp.launched_ns == 0 && front.end_ns > 0 && next_ns < stamp.begin_ns))
        stamp.begin_ns = next_ns;
      stamp.begin_ns = std::max(stamp.begin_ns, front.begin_ns);
    }
    ops.push_back(stamp);
  }
  /// For Stamp::waited_ns.
  static int32_t waited(int64_t ns) {
    return static_cast<int32_t>(std::clamp<int64_t>(ns, 0, std::numeric_limits<int32_t>::max()));
  }
  void clear() {
    ops.clear();
    launches.clear();
    end_ns = 0;
    waited_until_ns = 0;
    clock_offset_ns = 0;
  }
};

}  // namespace minfer
