#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/stamps.h"

namespace minfer {

/// An op of a step with the idle time behind it taken out of its interval.
struct BusyOp {
  int64_t busy_ns = 0;
  int64_t idle_host_ns = 0;  ///< from its end until the host had launched the next op, which then began
  int64_t idle_device_ns =
      0;  ///< from its end, or from the next op's launch if that was later: something that is no op ran
  bool is_late = false;  ///< the host launched it when the device had nothing else to do

  int64_t idle_ns() const { return idle_host_ns + idle_device_ns; }
};

/// Where the ends of a step's ops come from.
enum class IdleSource : uint8_t {
  none,  ///< begins alone, launched at once (a graph, a backend without launches): idle time inside the step is not seen
  launch_times,  ///< an op that began right after the host had launched it came late; when the one in front had ended is taken from
  ///< its own stamp or, without one, from what it took at the least when it was followed closely
  end_stamps,  ///< every op's own
};
std::string_view name(IdleSource source);

/// Finds what the device idled inside steps. Keeps what each op takes at the least, by its kernels and their sizes, so it is given
/// every step in order. One thread at a time.
class IdleFinder {
 public:
  /// Gaps between an op's end and the next one's begin that belong to launching one behind the other, on an H200. Shorter ones count
  /// as busy.
  static constexpr int64_t kLaunchGapNs = 3'000;
  /// The same where the next op had been launched in time: it may read weights or keys ahead before it stamps its begin.
  static constexpr int64_t kReadAheadNs = 8'000;
  /// An op that begins so soon after the host had launched it was waited for: launches take the device 2 to 8 us to take up.
  static constexpr int64_t kTakeUpNs = 12'000;

  /// The step's ops in their order; their memory is valid until the next call.
  std::span<const BusyOp> find(const StepStamps& stamps);
  std::span<const BusyOp> last() const { return ops_; }
  /// Of the last step.
  IdleSource source() const { return source_; }

 private:
  static constexpr size_t kMostKinds = 1u << 16;
  int64_t least_ns(uint64_t kind) const;
  void learn(uint64_t kind, int64_t ns);
  /// `end_ns`: of the op; the others are of the next one.
  static void set_idle(BusyOp& op, int64_t end_ns, int64_t next_launched_ns, int64_t next_ns);

  std::unordered_map<uint64_t, int64_t> least_ns_;  ///< by the hash of an op and its launches
  std::vector<BusyOp> ops_;
  IdleSource source_ = IdleSource::none;
};

}  // namespace minfer
