#include "profiling/chrome_trace/tracks.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

namespace minfer {
namespace {

/// Streams in the order of their numbers, each with what began early below it; requests in the order in which they came.
int32_t place_of(int64_t group, size_t lane, int32_t thread) {
  if (group == 0) return thread;
  return static_cast<int32_t>(std::min<int64_t>(group * 16 + static_cast<int64_t>(std::min<size_t>(lane, 15)),
                                                std::numeric_limits<int32_t>::max()));
}

}  // namespace

int32_t Tracks::named(int32_t process) {
  if (!num_threads_.try_emplace(process, 0).second) return process;
  const std::array<std::string_view, 3> names{"host", device_, "requests"};
  events_.name_process(process, process < kFirstRank
                                    ? std::string(names[static_cast<size_t>(process - kHost)])
                                    : "rank " + std::to_string(process - kFirstRank));
  return process;
}

Track Tracks::track(int32_t process, std::string title, int64_t group, size_t lane) {
  named(process);
  if (lane > 0) title += ", " + std::to_string(lane + 1);
  const auto [found, is_new] = tracks_.try_emplace({process, std::move(title)});
  Track& track = found->second;
  if (is_new) {
    track = {process, ++num_threads_[process]};
    events_.name_thread(track, found->first.second, place_of(group, lane, track.thread));
  }
  return track;
}

}  // namespace minfer
