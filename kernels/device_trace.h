#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minfer {

enum class ActivityKind : uint8_t { kernel, memcpy, memset };
std::string_view name(ActivityKind kind);

/// A piece of the device's work as recorded by the driver's own tracing. Times are now_ns() times.
struct DeviceActivity {
  ActivityKind kind = ActivityKind::kernel;
  int64_t step = -1;  ///< the step during whose launch it was launched; -1: outside of any
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t launch_ns =
      0;  ///< end of the host's call that launched it (a graph's call launches all its nodes); 0: not known
  int64_t graph_node = -1;  ///< the id of its node in its graph; -1: not launched by a graph
  int32_t stream = 0;       ///< the driver's number of the stream
  int32_t name = -1;        ///< index into DeviceTrace::names; -1: a copy or a fill
  int64_t bytes = 0;        ///< of copies and fills
};

/// The trace between start() and stop(), ordered by begin_ns, then by launch.
struct DeviceTrace {
  std::vector<DeviceActivity> activities;
  std::vector<std::string> names;  ///< of kernels, as in KernelLaunch
  int64_t dropped = 0;             ///< records that the driver or the cap left out
  int64_t invalid = 0;             ///< records with impossible times: see join()
  int64_t of_profiler = 0;         ///< kernels that the profiler launched itself, which are left out
  int64_t overhead_ns = 0;         ///< time that the tracing itself took, as far as it says
  bool own_clock = false;          ///< times came on the library's own clock and were converted
};

/// The records that a tracing library delivers, one by one and in no order. Times are on the library's clock, except those of
/// windows, clock pairs and the span.
struct TraceRecords {
  struct Activity {
    ActivityKind kind = ActivityKind::kernel;
    uint32_t correlation = 0;  ///< of the call that launched it
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    int64_t graph_node = -1;
    int32_t stream = 0;
    int32_t name = -1;
    int64_t bytes = 0;
    int32_t device = 0;  ///< the device that ran it
  };
  /// A call of the host. A call within another has the same correlation.
  struct Call {
    uint32_t correlation = 0;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  /// The step that a call was made for.
  struct CallStep {
    uint32_t correlation = 0;
    int64_t step = -1;
  };
  /// The span, by now_ns(), in which a step was launched.
  struct Window {
    int64_t step = -1;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    int32_t device = 0;
  };
  /// One instant on both clocks.
  struct ClockPair {
    int64_t library_ns = 0;
    int64_t host_ns = 0;
  };

  std::vector<Activity> activities;
  std::vector<Call> calls;
  std::vector<CallStep> call_steps;
  std::vector<Window> windows;  ///< each device's windows are in order
  std::vector<std::string> names;
  ClockPair start, stop;  ///< of the tracing
  int64_t dropped = 0;
  int64_t overhead_ns = 0;
};

/// Splits the records into the work of each of the devices 0 to count - 1; work of other devices is left out. A call belongs to the
/// device whose work it launched. Calls that launched nothing, dropped records and overhead go to the first device.
std::vector<TraceRecords> split_devices(TraceRecords records, int32_t count);

/// Puts the records together. The clock: the library was asked to use now_ns(). If the calls made for steps do not lie within the
/// windows of these steps, or activities do not lie within the traced span, it used its own. Then the times of the calls, or of the
/// activities, are converted by the line through the two clock pairs. An activity belongs to the step of the call that launched it; if
/// no record says which call that is, to the step in whose window it was launched. The profiler's own kernels are left out and counted
/// as such, whenever they ran: another thread launches them, maybe in a step's window, maybe while the tracing begins or ends, which
/// takes milliseconds. Other activities are left out and counted as invalid if they have no times, if they end before they begin, or if
/// they lie more than a millisecond outside the traced span.
DeviceTrace join(TraceRecords records);

/// The driver's tracing of kernels and copies on all devices that this process uses (profiler tier 1). The first rank's backend makes
/// it. Called from the engine thread, except begin_launch() and end_launch(). The devices are idle at start() and stop().
class DeviceTracer {
 public:
  virtual ~DeviceTracer() = default;
  /// Begins to trace at most `most_records` activities. Returns an error text if that is impossible: no library, no permission,
  /// or another tool that holds it (named, if possible). In either case that other tool is told that a range begins, so stop()
  /// always follows.
  virtual std::string start(int64_t most_records) = 0;
  /// Everything that the calling thread launches until end_launch() belongs to `step`. On the thread of the rank with this device number.
  virtual void begin_launch(int64_t step, int32_t device) = 0;
  virtual void end_launch(int32_t device) = 0;
  /// True once there are most_records activities: further ones are only counted.
  virtual bool is_full() const = 0;
  /// Ends the tracing and gives the library back. start() may follow.
  virtual TraceRecords stop() = 0;
};

}  // namespace minfer
