#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/stamps.h"

namespace minfer {

/// An op of a step, without the idle time behind it.
struct BusyOp {
  int64_t busy_ns = 0;
  int64_t idle_host_ns = 0;    ///< from its end until the host launched the next op, which then began
  int64_t idle_device_ns = 0;  ///< from its end, or the next launch if later: something other than an op ran
  bool is_late = false;        ///< the host launched it when the device had nothing else to do

  int64_t idle_ns() const { return idle_host_ns + idle_device_ns; }
};

/// Where the ends of a step's ops come from.
enum class IdleSource : uint8_t {
  none,  ///< only begins are stamped, and all ops are launched at once (a graph, or no launches): idle time inside the step is not seen
  launch_times,  ///< an op counts as late if the host launched it after the op in front must have ended, and it began as soon as launches
  ///< do. The end of the op in front comes from its own stamp or, without one, from its least time when an op followed it closely
  end_stamps,  ///< every op has a stamp of its end
};
std::string_view name(IdleSource source);

/// Finds the idle time of the device inside steps. Remembers the least time of each op, by its kernels and their sizes, and how soon
/// the device starts a launch. So it needs every step, in order. One thread at a time.
class IdleFinder {
 public:
  /// The gap between back-to-back launches, from one op's end to the next op's begin, measured on an H200. Shorter gaps count
  /// as busy.
  static constexpr int64_t kLaunchGapNs = 3'000;
  /// The same if the next op was launched in time. That op may read weights or keys ahead before it stamps its begin.
  static constexpr int64_t kReadAheadNs = 8'000;
  /// An idle device starts a launch after 2 to 8 us (13 us while a tracer runs). So if an op begins this soon after its launch, the
  /// device may have waited for it.
  static constexpr int64_t kTakeUpNs = 20'000;
  /// If a launch takes longer than this to start, something else held it up.
  static constexpr int64_t kMostTakeUpNs = 100'000;

  /// Returns the step's ops in order; the span is valid until the next call.
  std::span<const BusyOp> find(const StepStamps& stamps);
  /// Replaces find() for a step that nobody asks about.
  void pass_over(const StepStamps& stamps) { last_end_ns_ = stamps.end_ns; }
  std::span<const BusyOp> last() const { return ops_; }
  /// The source for the last step.
  IdleSource source() const { return source_; }
  /// A launch that starts within this time counts as started at once: kTakeUpNs, or more on a slower (say, busy) machine: three times
  /// the start time of the last launches that the device is known to have waited for. kMostTakeUpNs at the most.
  int64_t take_up_ns() const { return take_up_ns_; }

 private:
  static constexpr size_t kMostKinds = 1u << 16;
  static constexpr size_t kTakeUps = 32;
  static constexpr size_t kFewestTakeUps = 8;
  int64_t least_ns(uint64_t kind) const;
  void learn(uint64_t kind, int64_t ns);
  bool is_late(int64_t least_end_ns, int64_t next_launched_ns, int64_t next_ns) const;
  /// `end_ns` is the op's; the other times are the next op's.
  void set_idle(BusyOp& op, int64_t end_ns, int64_t next_launched_ns, int64_t next_ns) const;
  void note_take_up(int64_t front_end_ns, int64_t launched_ns, int64_t begin_ns);
  void learn_take_up();

  std::unordered_map<uint64_t, int64_t> least_ns_;  ///< by the hash of an op and its launches
  std::array<int64_t, kTakeUps> take_ups_{};        ///< a ring
  size_t num_take_ups_ = 0;                         ///< ever noted
  size_t num_learned_take_ups_ = 0;                 ///< the number of them that take_up_ns_ rests on
  int64_t take_up_ns_ = kTakeUpNs;
  int64_t last_end_ns_ = 0;  ///< of the last step; 0: there was none
  std::vector<BusyOp> ops_;
  IdleSource source_ = IdleSource::none;
};

}  // namespace minfer
