#pragma once

#include <cstddef>

#include <sys/resource.h>

namespace minfer {

/// Lets this process open as many files and sockets as the system allows: thousands of
/// connections need more than many systems allow at first. Returns that number; 0: not known.
inline size_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // refused: the limit stays as it was
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace minfer
