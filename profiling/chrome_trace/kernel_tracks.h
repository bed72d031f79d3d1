#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "kernels/launches.h"
#include "profiling/chrome_trace/lanes.h"
#include "profiling/chrome_trace/tracks.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// When the host's call that launched a kernel or copy ended; none: not known. A kernel that began before the call had ended has its
/// own begin.
std::optional<int64_t> launch_end_ns(const KernelLine& kernel);
/// Of the last call that launched kernels of ops. Where the host came back to have a step's tokens drawn, when the masks of its rows were
/// known, of the last one before that.
std::optional<int64_t> last_launch_ns(std::span<const KernelLine> kernels);

/// Writes kernels, copies and fills on a track for each stream, and the calls that launched them, with an arrow to each but the later
/// ones of a graph, which one call launches.
///
/// With programmatic launches a kernel begins while the one in front still runs: it waits, or reads ahead. On its stream's track it
/// stands for the time from that one's end to its own; what lies before stands, under the same name, on a track "begun early" of the
/// stream, as many as overlap there. One that ended before the one in front has a duration of 0.
class KernelTracks {
 public:
  KernelTracks(TraceEvents& events, Tracks& tracks) : events_(events), tracks_(tracks) {}

  /// `kernels`: of one step, by begin; `launches`: what their KernelLine::launch is an index into.
  void add(std::span<const KernelLine> kernels, std::span<const KernelLaunch> launches);

 private:
  struct Stream {
    int64_t busy_until_ns = std::numeric_limits<int64_t>::min();
    Lanes early;
  };
  /// A call of the host's.
  struct Call {
    TimeSpan span;
    const char* name = "";
    int64_t correlation = 0;
    int64_t step = 0;
    Track track;
  };
  static constexpr size_t kNoCall = SIZE_MAX;
  struct Launched {
    int64_t correlation = 0;
    size_t call = kNoCall;  ///< that is drawn with an arrow to the kernel
  };

  TimeSpan own_span(const KernelLine& kernel);
  void write_calls(std::vector<Call>& calls);
  /// `call`: null where no arrow is drawn.
  void write_kernel(const KernelLine& kernel, int64_t correlation, const Call* call,
                    std::span<const KernelLaunch> launches);

  TraceEvents& events_;
  Tracks& tracks_;
  std::map<int32_t, Stream> streams_;  ///< by number
  Lanes calls_;
  int64_t num_calls_ = 0;
};

}  // namespace minfer
