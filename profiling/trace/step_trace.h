#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device_trace.h"
#include "kernels/launches.h"
#include "kernels/stamps.h"

namespace minfer {

/// The reason why the device was idle before an activity.
enum class GapCause : uint8_t {
  none,     ///< something ran
  start,    ///< first of its step: the gap is between steps
  host,     ///< the host launched it when everything in front had ended
  device,   ///< it had been launched in time
  unknown,  ///< no record says when it was launched
};
std::string_view name(GapCause cause);

/// The cause of a gap of `gap_ns` before an activity; the gap began when everything in front had ended. `launch_ns`: see DeviceActivity.
GapCause gap_cause(bool is_first, int64_t gap_ns, int64_t launch_ns, int64_t front_end_ns);

/// A kernel, copy or fill, placed in its step.
struct TracedActivity {
  ActivityKind kind = ActivityKind::kernel;
  int32_t run = -1;     ///< the op run that launched it, an index into StepStamps::ops; -1: not known
  int32_t launch = -1;  ///< index into the table of launches; -1: not known
  int32_t name = -1;    ///< index into DeviceTrace::names; -1: no kernel
  int32_t stream = 0;
  bool in_graph = false;
  int64_t begin_ns = 0;
  int64_t duration_ns = 0;
  int64_t own_ns = 0;  ///< part of the duration in which no earlier activity ran
  int64_t gap_ns = 0;  ///< idle time before it; for a step's first, not known here
  GapCause gap_cause = GapCause::none;
  int64_t delay_ns = -1;  ///< from the end of the call that launched it; -1: not known
  int64_t bytes = 0;      ///< of copies and fills

  int64_t end_ns() const { return begin_ns + duration_ns; }
};

/// The driver's trace of one step.
struct StepTrace {
  int64_t step = 0;
  std::vector<TracedActivity> activities;  ///< in the order of their begins
  int64_t busy_ns = 0;                     ///< with at least one kernel running
  int64_t attributed_ns = 0;               ///< with at least one running that is known to be of an op
  int64_t idle_ns = 0;       ///< with none, between the first kernel's begin and the last one's end
  int64_t host_wait_ns = 0;  ///< part of idle_ns before kernels that were launched too late for less
  int32_t unmatched = 0;     ///< kernels that fit none of the step's launches
  int32_t missing = 0;       ///< launches that no kernel was seen of
};

/// Numbers of kernel names; the same name has the same number in records and in launches.
struct NameNumbers {
  std::vector<int32_t> of_record;  ///< by DeviceActivity::name
  std::vector<int32_t> of_launch;  ///< by index into the table of launches
};
NameNumbers number_names(std::span<const std::string> record_names, std::span<const KernelLaunch> launches);

/// Places the activities of one step, ordered as in DeviceTrace. Matches the step's kernels with its launches by name and order;
/// copies and fills belong to no op.
StepTrace place(int64_t step, const StepStamps& stamps, std::span<const DeviceActivity> activities,
                const NameNumbers& names);

/// Matches a step's kernel records with its launches.
struct LaunchMatch {
  std::vector<int32_t> launch_of;  ///< by record: index of its launch; -1: it fits none
  int32_t unmatched = 0;           ///< records that fit no launch
  int32_t missing = 0;             ///< launches without a record
};

/// The name of an unknown launch; any record fits it.
inline constexpr int32_t kAnyName = -1;

/// Aligns records, in the order of their begins, with launches, in the order of their calls, so that as few as possible
/// of both are left over (Myers, "An O(ND) difference algorithm", 1986). Both are numbers of kernel names. If over 512 are left
/// over, the match ends with the pairs found up to there.
LaunchMatch match_launches(std::span<const int32_t> records, std::span<const int32_t> launches);

}  // namespace minfer
