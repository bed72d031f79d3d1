#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/op.h"

namespace minfer {

/// One step's ops on the device, in the order in which they ran. The interval of an op runs from its begin to the next op's begin
/// (the last op's to `end_ns`), so the intervals add up to the step's device time exactly; idle time between two ops belongs to
/// the first. Owned by the engine and filled by the backend on the engine thread; reused over steps without allocating.
struct StepStamps {
  /// Time from the end of a kernel to the begin of the next, launched right behind it (on an H200: 0.5 to 1.3 us).
  static constexpr int64_t kLaunchNs = 1'000;

  struct Stamp {
    OpId op = -1;
    /// For an op between ranks: the time from its begin until all ranks had come, at most two seconds; 0: not known.
    int32_t waited_ns = 0;
    int64_t begin_ns = 0;  ///< see add()
    /// When the host had launched its first kernel; 0: a graph launched it, or there are no launches.
    int64_t launched_ns = 0;
    int64_t end_ns = 0;        ///< end of its last kernel; 0: not stamped
    int32_t num_launches = 0;  ///< kernels that it launched
    /// For a product of experts: the number of experts that a token of the step chose, so that were read. -1: not known.
    int32_t experts_read = -1;
  };
  std::vector<Stamp> ops;
  std::vector<int32_t>
      launches;  ///< of all ops, one op after the other: indices into Backend::launches(), or -1
  int64_t end_ns = 0;
  /// When the host had finished waiting for the device's end of the step; 0: it did not wait, the ops ran on the host.
  int64_t waited_until_ns = 0;
  /// The offset that was added to the device's own clock to give the times above; it changes, as the two clocks drift.
  int64_t clock_offset_ns = 0;

  /// Splits the launches of `stamp` off the front of `rest`, the launches of this and all later ops. Fewer, if `rest` has fewer.
  static std::span<const int32_t> take_launches(const Stamp& stamp, std::span<const int32_t>& rest) {
    const std::span<const int32_t> taken =
        rest.first(std::min(rest.size(), static_cast<size_t>(std::max(0, stamp.num_launches))));
    rest = rest.subspan(taken.size());
    return taken;
  }
  /// Adds the next op with its stamp; begin_ns 0: it has none, because its kernel is a library's. In a graph nothing runs between
  /// two ops. So if an op stamped late, after reading ahead, it still began right behind the end of the op in front.
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
  /// Converts to Stamp::waited_ns.
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
