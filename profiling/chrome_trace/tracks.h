#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "profiling/chrome_trace/trace_events.h"

namespace minfer {

/// The tracks of a trace. Each gets a number, and is named on its first use. Processes are named before their tracks.
class Tracks {
 public:
  /// `device`: the device that runs the ops, e.g. "GPU NVIDIA H200".
  Tracks(TraceEvents& events, std::string device) : events_(events), device_(std::move(device)) {}

  Track engine() { return track(kHost, "engine thread"); }
  /// Calls that launched kernels or copies; `lane`: the row, since calls overlap.
  Track calls(size_t lane) { return track(kHost, "CUDA calls", 1, lane); }
  Track ops() { return track(kDevice, "steps, phases, layers and ops"); }
  Track stream(int32_t stream) { return stream_of(kDevice, stream); }
  /// The parts of the stream's kernels that overlap earlier kernels.
  Track overlap(int32_t stream, size_t lane) {
    return track(kDevice, "stream " + std::to_string(stream) + ", begun early", int64_t{stream} * 2 + 11,
                 lane);
  }
  Track request(const std::string& id) { return track(kRequests, id); }
  Track rank(int32_t rank) { return track(kFirstRank + rank, "steps"); }
  Track rank_stream(int32_t rank, int32_t stream) { return stream_of(kFirstRank + rank, stream); }
  int32_t counters() { return named(kDevice); }
  int32_t rank_counters(int32_t rank) { return named(kFirstRank + rank); }

 private:
  /// Processes, in the order that viewers show.
  static constexpr int32_t kHost = 1, kDevice = 2, kRequests = 3, kFirstRank = 10;

  Track stream_of(int32_t process, int32_t stream) {
    return track(process, "stream " + std::to_string(stream), int64_t{stream} * 2 + 10);
  }
  int32_t named(int32_t process);
  /// `group`: its place among the process's tracks; 0: in the order in which they came.
  Track track(int32_t process, std::string title, int64_t group = 0, size_t lane = 0);

  TraceEvents& events_;
  std::string device_;
  std::map<int32_t, int32_t> num_threads_;                   ///< by process
  std::map<std::pair<int32_t, std::string>, Track> tracks_;  ///< by process and title
};

}  // namespace minfer
