#include "profiling/record/machine.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>

namespace minfer {
namespace {

// The rest of the first line that starts with `key`, without leading blanks and colons.
std::string field_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(": \t", key.size());
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

// Version 2 as containers see it: their own group at the root. "max" (no limit) is no number.
std::optional<size_t> control_group_room() {
  size_t limit = 0, used = 0;
  std::ifstream limit_file("/sys/fs/cgroup/memory.max"), used_file("/sys/fs/cgroup/memory.current");
  if (!(limit_file >> limit) || !(used_file >> used)) return std::nullopt;
  return limit - std::min(limit, used);
}

}  // namespace

std::string processor_name() {
  std::string name = field_of("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown" : name;
}

size_t available_memory_bytes() {
  const size_t free = std::strtoull(field_of("/proc/meminfo", "MemAvailable").c_str(), nullptr, 10) * 1024;
  return std::min(free, control_group_room().value_or(free));
}

}  // namespace minfer
