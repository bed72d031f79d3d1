#include "profiling/chrome_trace/tracks.h"

#include <algorithm>
#include <limits>

namespace minfer {
namespace {

/// Streams in the order of their numbers, each with what began early below it; requests in the order in which they came.
int32_t place_of(int64_t group, size_t lane, int32_t thread) {
  if (group == 0) return thread;
  return static_cast<int32_t>(std::min<int64_t>(group * 16 + static_cast<int64_t>(std::min<size_t>(lane, 15)),
                                                std::numeric_limits<int32_t>::max()));
}

}  // namespace

std::string Tracks::name_of(TraceProcess process) const {
  switch (process) {
    case TraceProcess::host:
      return "host";
    case TraceProcess::device:
      return device_;
    case TraceProcess::requests:
      return "requests";
    default:
      return "rank " +
             std::to_string(static_cast<int32_t>(process) - static_cast<int32_t>(TraceProcess::first_rank));
  }
}

int32_t Tracks::process(TraceProcess process) {
  const auto number = static_cast<int32_t>(process);
  if (num_threads_.try_emplace(process, 0).second) {
    events_.name_process(number, name_of(process));
  }
  return number;
}

Track Tracks::track(TraceProcess process, int64_t group, size_t lane, const std::string& id,
                    std::string title) {
  const int32_t process_number = this->process(process);
  const auto [found, is_new] = tracks_.try_emplace({process, group, lane, id});
  if (is_new) {
    found->second = {process_number, ++num_threads_[process]};
    if (lane > 0) title += ", " + std::to_string(lane + 1);
    events_.name_thread(found->second, title, place_of(group, lane, found->second.thread));
  }
  return found->second;
}

}  // namespace minfer
