#pragma once

#include <cstdint>
#include <cstdio>

#include <unistd.h>

namespace minfer::test {

/// Memory of this process that is in RAM, in bytes; -1 if the system does not say.
inline int64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long long total = 0, resident = 0;
  const bool is_read = file != nullptr && std::fscanf(file, "%lld %lld", &total, &resident) == 2;
  if (file != nullptr) std::fclose(file);
  return is_read ? resident * sysconf(_SC_PAGESIZE) : -1;
}

}  // namespace minfer::test
