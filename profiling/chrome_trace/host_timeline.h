#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string_view>

#include "profiling/chrome_trace/trace_events.h"
#include "profiling/summary/summary.h"

namespace minfer {

/// The source of the time at which the host began to schedule a step.
enum class HostBegin : uint8_t {
  record,   ///< the step's own record
  kernels,  ///< the end of the last call that launched kernels of it
  order,    ///< only the order: it came after the host's earlier work
};
std::string_view name(HostBegin begin);

/// Orders the parts of steps on the engine's thread by time. A record has the length of each part, and the begin of
/// the step. For a step that was launched while the device still worked on the one before, the begin is lost:
///
///     host    | schedule build launch N+1 | wait N ............ | commit N ... | schedule build launch N+2 | wait N+1 ....
///     device  | step N .................................... | step N+1 ..............................................
///
/// Pure except for the order that it keeps. It needs every step, in order.
class HostTimeline {
 public:
  struct Part {
    int64_t step = 0;
    HostSpan kind = HostSpan::schedule;
    TimeSpan span;
  };
  /// All parts up to the launch of a step: drafts, schedule, build, launch.
  struct Launch {
    int64_t step = 0;
    TimeSpan span;
    HostBegin begin = HostBegin::record;
  };
  struct Visit {
    std::function<void(const Launch&)> launch;  ///< in front of its parts
    std::function<void(const Part&)> part;
  };

  /// Visits the parts whose times are now known, in the order of time and without overlap. `launched_ns`: the end of the last call that
  /// launched kernels of the step.
  void add(const StepSummary& step, std::optional<int64_t> launched_ns, const Visit& visit);
  /// Visits the rest: what follows the launch of the last step.
  void finish(const Visit& visit);

 private:
  void place_launch(const StepSummary& step, bool is_queued, std::optional<int64_t> launched_ns,
                    const Visit& visit);

  struct Open {
    int64_t step = 0;
    int64_t end_ns = 0;
    bool on_device = false;
    std::array<double, kHostSpans> host_us{};
  };
  std::optional<Open> open_;     ///< the step that was launched and not waited for
  int64_t now_ns_ = -kLatestNs;  ///< end of the last placed part
};

}  // namespace minfer
