#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "profiling/chrome_trace/trace_events.h"

namespace minfer {

/// The processes of a trace, in the order that viewers show. Ranks have the numbers from `first_rank` on.
enum class TraceProcess : int32_t { host = 1, device = 2, requests = 3, first_rank = 10 };

/// The tracks of a trace. Each gets a number, and is named on its first use. Processes are named before their tracks.
class Tracks {
 public:
  /// `device`: the device that runs the ops, e.g. "GPU NVIDIA H200".
  Tracks(TraceEvents& events, std::string device) : events_(events), device_(std::move(device)) {}

  Track engine() { return track(TraceProcess::host, 0, 0, "", "engine thread"); }
  /// Calls that launched kernels or copies; `lane`: the row, since calls overlap.
  Track calls(size_t lane) { return track(TraceProcess::host, 1, lane, "", "CUDA calls"); }
  Track ops() { return track(TraceProcess::device, 0, 0, "", "steps, phases, layers and ops"); }
  Track stream(int32_t stream) {
    return track(TraceProcess::device, int64_t{stream} * 2 + 10, 0, "", "stream " + std::to_string(stream));
  }
  /// The parts of the stream's kernels that overlap earlier kernels.
  Track overlap(int32_t stream, size_t lane) {
    return track(TraceProcess::device, int64_t{stream} * 2 + 11, lane, "",
                 "stream " + std::to_string(stream) + ", begun early");
  }
  Track request(const std::string& id) { return track(TraceProcess::requests, 0, 0, id, id); }
  Track rank(int32_t rank) {
    return track(static_cast<TraceProcess>(static_cast<int32_t>(TraceProcess::first_rank) + rank), 0, 0, "",
                 "steps");
  }
  Track rank_stream(int32_t rank, int32_t stream) {
    return track(static_cast<TraceProcess>(static_cast<int32_t>(TraceProcess::first_rank) + rank),
                 int64_t{stream} * 2 + 10, 0, "", "stream " + std::to_string(stream));
  }
  int32_t counters() { return process(TraceProcess::device); }
  int32_t rank_counters(int32_t rank) {
    return process(static_cast<TraceProcess>(static_cast<int32_t>(TraceProcess::first_rank) + rank));
  }

 private:
  std::string name_of(TraceProcess process) const;
  int32_t process(TraceProcess process);
  Track track(TraceProcess process, int64_t group, size_t lane, const std::string& id, std::string title);

  TraceEvents& events_;
  std::string device_;
  std::map<TraceProcess, int32_t> num_threads_;
  std::map<std::tuple<TraceProcess, int64_t, size_t, std::string>, Track> tracks_;
};

}  // namespace minfer
