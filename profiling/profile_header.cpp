#include "profiling/profile_header.h"

#include <chrono>

#include "kernels/stamps.h"

namespace minfer {

std::string_view name(ProfileDetail detail) {
  return detail == ProfileDetail::layer ? "layer" : "op";
}

void stamp_clocks(ProfileHeader& header) {
  using std::chrono::duration_cast, std::chrono::nanoseconds, std::chrono::system_clock;
  header.clock_ns = now_ns();
  header.unix_ns = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace minfer
