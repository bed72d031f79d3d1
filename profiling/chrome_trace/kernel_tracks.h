#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/launches.h"
#include "profiling/chrome_trace/tracks.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// Spreads spans over as many rows as needed, so that the spans of a row ascend and do not overlap.
class Lanes {
 public:
  /// Returns the first row whose last span has ended when this span begins.
  size_t place(TimeSpan span) {
    size_t lane = 0;
    while (lane < ends_ns_.size() && ends_ns_[lane] > span.begin_ns)
      ++lane;
    if (lane == ends_ns_.size()) ends_ns_.push_back(std::numeric_limits<int64_t>::min());
    ends_ns_[lane] = span.end_ns;
    return lane;
  }

 private:
  std::vector<int64_t> ends_ns_;  ///< of each row's last span
};

/// The end of the host's call that launched a kernel or copy; no value: not known. For a kernel that began before the call ended, its
/// own begin.
std::optional<int64_t> launch_end_ns(const KernelLine& kernel);
/// The end of the last call that launched kernels of ops. If the host came back to draw a step's tokens once the masks of its rows were
/// known, the end of the last call before that.
std::optional<int64_t> last_launch_ns(std::span<const KernelLine> kernels);

/// Writes kernels, copies and fills on a track for each stream, and the calls that launched them. An arrow leads from the call to each,
/// except the later kernels of a graph, which one call launches.
///
/// With programmatic launches, a kernel begins while the kernel in front still runs: it waits or reads ahead. Its slice on the stream's
/// track lasts from the front kernel's end to its own end. Its earlier time is a slice of the same name on a track "begun early" of the
/// stream, with as many such tracks as overlap. A kernel that ended before the one in front has a duration of 0.
class KernelTracks {
 public:
  KernelTracks(TraceEvents& events, Tracks& tracks) : events_(events), tracks_(tracks) {}

  /// `kernels`: of one step, by begin; `launches`: the table that KernelLine::launch is an index into.
  void add(std::span<const KernelLine> kernels, std::span<const KernelLaunch> launches);

 private:
  struct Stream {
    int64_t busy_until_ns = std::numeric_limits<int64_t>::min();
    Lanes early;
  };
  /// The call of the host that launched a kernel.
  struct Call {
    int64_t correlation = 0;
    std::string_view name;  ///< empty: its end is not known, or an earlier kernel of its graph has the call
    TimeSpan span;
    int64_t step = 0;
    Track track;

    /// True if the call has a slice, and an arrow from there to the kernel.
    bool is_drawn() const { return !name.empty(); }
  };

  void write_calls(std::vector<Call>& calls);
  void write_kernel(const KernelLine& kernel, const Call& call, std::span<const KernelLaunch> launches);

  TraceEvents& events_;
  Tracks& tracks_;
  std::map<int32_t, Stream> streams_;  ///< by number
  Lanes calls_;
  int64_t num_calls_ = 0;
};

}  // namespace minfer
