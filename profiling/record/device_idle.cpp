#include "profiling/record/device_idle.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace minfer {
namespace {

/// Ops that launch the same kernels with the same sizes do the same work but for the length of contexts.
uint64_t kind_of(const StepStamps::Stamp& stamp, std::span<const int32_t> launches) {
  uint64_t hash = static_cast<uint64_t>(stamp.op) + 1;
  for (const int32_t launch : launches)
    hash = (hash ^ static_cast<uint64_t>(static_cast<uint32_t>(launch))) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 32;
}

}  // namespace

std::string_view name(IdleSource source) {
  static constexpr std::array<std::string_view, 3> kNames{"begin stamps", "launch times", "end stamps"};
  return kNames[static_cast<size_t>(source)];
}

int64_t IdleFinder::least_ns(uint64_t kind) const {
  const auto found = least_ns_.find(kind);
  return found == least_ns_.end() ? 0 : found->second;
}

void IdleFinder::learn(uint64_t kind, int64_t ns) {
  const auto found = least_ns_.find(kind);
  if (found != least_ns_.end()) {
    found->second = std::min(found->second, ns);
  } else if (least_ns_.size() < kMostKinds) {
    least_ns_.emplace(kind, ns);
  }
}

/// For an op whose front stamped no end. `least_end_ns`: the front's end if it took its least time (or no time, if that is not
/// known). A launch
/// before that came in time, however soon the op began; an op that the device did not start at once had to wait for its front.
bool IdleFinder::is_late(int64_t least_end_ns, int64_t next_launched_ns, int64_t next_ns) const {
  return next_launched_ns > least_end_ns && next_ns - next_launched_ns <= take_up_ns_;
}

void IdleFinder::set_idle(BusyOp& op, int64_t end_ns, int64_t next_launched_ns, int64_t next_ns) const {
  const int64_t idle_ns = next_ns - end_ns;
  op.busy_ns -= idle_ns;
  const int64_t since_launch_ns = next_ns - std::max(end_ns, next_launched_ns);
  const bool was_waited_for = next_launched_ns > end_ns;
  // A launch that is waited for is taken up in some microseconds, which are the host's as well.
  op.idle_device_ns =
      was_waited_for && since_launch_ns <= take_up_ns_ ? 0 : std::min(since_launch_ns, idle_ns);
  op.idle_host_ns = idle_ns - op.idle_device_ns;
}

/// Notes a launch that came after everything in front had ended, with a stamped end: only then did the device surely wait for it.
void IdleFinder::note_take_up(int64_t front_end_ns, int64_t launched_ns, int64_t begin_ns) {
  if (front_end_ns <= 0 || launched_ns <= front_end_ns) return;
  const int64_t take_up_ns = begin_ns - launched_ns;
  if (take_up_ns > kMostTakeUpNs) return;
  take_ups_[num_take_ups_++ % kTakeUps] = take_up_ns;
}

/// From the median of the last ones: now and then something that is no op runs in front of an op.
void IdleFinder::learn_take_up() {
  if (num_take_ups_ == num_learned_take_ups_ || num_take_ups_ < kFewestTakeUps) return;
  num_learned_take_ups_ = num_take_ups_;
  std::array<int64_t, kTakeUps> sorted = take_ups_;
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(num_take_ups_, kTakeUps));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  take_up_ns_ = std::clamp(3 * *middle, kTakeUpNs, kMostTakeUpNs);
}

std::span<const BusyOp> IdleFinder::find(const StepStamps& stamps) {
  const size_t num_ops = stamps.ops.size();
  ops_.assign(num_ops, {});
  size_t num_ends = 0, num_launch_times = 0;
  std::span<const int32_t> launches = stamps.launches;
  if (num_ops > 0) note_take_up(last_end_ns_, stamps.ops[0].launched_ns, stamps.ops[0].begin_ns);
  for (size_t i = 0; i < num_ops; ++i) {
    const StepStamps::Stamp& stamp = stamps.ops[i];
    const uint64_t kind = kind_of(stamp, StepStamps::take_launches(stamp, launches));

    const bool is_last = i + 1 == num_ops;
    const int64_t next_ns = is_last ? stamps.end_ns : stamps.ops[i + 1].begin_ns;
    const int64_t next_launched_ns = is_last ? 0 : stamps.ops[i + 1].launched_ns;
    const int64_t interval_ns = std::max<int64_t>(0, next_ns - stamp.begin_ns);
    BusyOp& op = ops_[i];
    op.busy_ns = interval_ns;
    if (next_launched_ns == 0) continue;  // the step's end, or launched as a graph
    const bool has_end = stamp.end_ns > 0;
    (has_end ? num_ends : num_launch_times) += 1;
    bool& next_is_late = ops_[i + 1].is_late;
    const int64_t least = least_ns(kind);
    next_is_late = has_end ? next_launched_ns > stamp.end_ns
                           : is_late(stamp.begin_ns + least, next_launched_ns, next_ns);
    int64_t busy_ns = interval_ns;
    if (has_end) {
      busy_ns = std::clamp<int64_t>(stamp.end_ns - stamp.begin_ns, 0, interval_ns);
      note_take_up(stamp.end_ns, next_launched_ns, next_ns);
    }
    if (has_end || !next_is_late) {
      learn(kind, busy_ns);
    } else if (least > 0) {
      busy_ns = std::min(least, interval_ns);
    }
    const bool was_in_time = has_end && !next_is_late;
    if (interval_ns - busy_ns > (was_in_time ? kReadAheadNs : kLaunchGapNs))
      set_idle(op, stamp.begin_ns + busy_ns, next_launched_ns, next_ns);
  }
  learn_take_up();
  if (num_ops > 0) last_end_ns_ = stamps.end_ns;
  source_ = num_launch_times > 0 ? IdleSource::launch_times
            : num_ends > 0       ? IdleSource::end_stamps
                                 : IdleSource::none;
  return ops_;
}

}  // namespace minfer
