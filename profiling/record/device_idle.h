#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/stamps.h"

namespace minfer {

/// An op of a step with the idle time behind it taken out of its interval.
struct BusyOp {
  int64_t busy_ns = 0;
  int64_t idle_host_ns = 0;    ///< from its end until the host had launched the next op, which then began
  int64_t idle_device_ns = 0;  ///< from its end, or the next op's launch if later: what is no op ran
  bool is_late = false;        ///< the host launched it when the device had nothing else to do

  int64_t idle_ns() const { return idle_host_ns + idle_device_ns; }
};

/// Where the ends of a step's ops come from.
enum class IdleSource : uint8_t {
  none,  ///< begins alone, launched at once (a graph, a backend without launches): idle time inside the step is not seen
  launch_times,  ///< an op came late that was launched when the one in front must have ended, and began as soon as launches do; when
  ///< that one had ended is taken from its own stamp or, without one, from what it took at the least when it was followed closely
  end_stamps,  ///< every op's own
};
std::string_view name(IdleSource source);

/// Finds what the device idled inside steps. Keeps what each op takes at the least, by its kernels and their sizes, and how soon the
/// device takes launches up, so it is given every step in order. One thread at a time.
class IdleFinder {
 public:
  /// Gaps between an op's end and the next one's begin that belong to launching one behind the other, on an H200. Shorter ones count
  /// as busy.
  static constexpr int64_t kLaunchGapNs = 3'000;
  /// The same where the next op had been launched in time: it may read weights or keys ahead before it stamps its begin.
  static constexpr int64_t kReadAheadNs = 8'000;
  /// An idle device takes 2 to 8 us to take a launch up, 13 while something traces it: an op that begins so soon after its launch may
  /// have been waited for.
  static constexpr int64_t kTakeUpNs = 20'000;
  /// What takes longer than this was held up by something else.
  static constexpr int64_t kMostTakeUpNs = 100'000;

  /// The step's ops in their order; their memory is valid until the next call.
  std::span<const BusyOp> find(const StepStamps& stamps);
  /// Instead of find(), for a step that nobody asks about.
  void pass_over(const StepStamps& stamps) { last_end_ns_ = stamps.end_ns; }
  std::span<const BusyOp> last() const { return ops_; }
  /// Of the last step.
  IdleSource source() const { return source_; }
  /// Within which a launch counts as taken up at once: kTakeUpNs, or on a machine that is slower at it, a busy one say, three times
  /// what the last launches took for which the device is known to have waited. kMostTakeUpNs at the most.
  int64_t take_up_ns() const { return take_up_ns_; }

 private:
  static constexpr size_t kMostKinds = 1u << 16;
  static constexpr size_t kTakeUps = 32;
  static constexpr size_t kFewestTakeUps = 8;
  int64_t least_ns(uint64_t kind) const;
  void learn(uint64_t kind, int64_t ns);
  bool is_late(int64_t least_end_ns, int64_t next_launched_ns, int64_t next_ns) const;
  /// `end_ns`: of the op; the others are of the next one.
  void set_idle(BusyOp& op, int64_t end_ns, int64_t next_launched_ns, int64_t next_ns) const;
  void note_take_up(int64_t front_end_ns, int64_t launched_ns, int64_t begin_ns);
  void learn_take_up();

  std::unordered_map<uint64_t, int64_t> least_ns_;  ///< by the hash of an op and its launches
  std::array<int64_t, kTakeUps> take_ups_{};        ///< a ring
  size_t num_take_ups_ = 0;                         ///< ever noted
  size_t num_learned_take_ups_ = 0;                 ///< of them, those that take_up_ns_ rests on
  int64_t take_up_ns_ = kTakeUpNs;
  int64_t last_end_ns_ = 0;  ///< of the last step; 0: there was none
  std::vector<BusyOp> ops_;
  IdleSource source_ = IdleSource::none;
};

}  // namespace minfer
