#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "profiling/host/host_sample.h"

namespace minfer {

/// The system's counters of this process and of the machine at an instant.
struct HostCounters {
  struct Thread {
    int64_t ran_ns = 0;
    int64_t waited_ns = 0;
  };
  int64_t at_ns = 0;
  std::map<int32_t, Thread> threads;  ///< the computing threads, by id
  int32_t engine_thread = 0;
  int64_t switches = 0;
  int32_t runnable = 0;
  int64_t stolen_ns = 0;     ///< summed over cores
  int64_t throttled_ns = 0;  ///< likewise
  double quota_cores = 0.0;
  int64_t disk_faults = 0;
  int64_t disk_stalled_ns = 0;
  int64_t memory_stalled_ns = 0;
  int64_t swapped_bytes = 0;
  int64_t file_bytes = 0;
  double core_mhz = 0.0;  ///< of the engine's thread
  double most_core_mhz = 0.0;
};

/// The time for which the calling thread was ready to run without a core; 0 if the system does not say.
int64_t waited_ns_of_thread();

/// The differences between two readings, on a machine with `cores` cores.
HostSample between(const HostCounters& before, const HostCounters& after, int32_t cores);

/// Reads Linux's files of processes and control groups (proc(5), cgroups(7); versions 1 and 2). Counters that the system lacks stay 0.
class HostReader {
 public:
  /// `root`: the folder that holds /proc and /sys.
  explicit HostReader(std::filesystem::path root = "/");

  /// `engine_thread`: the thread's id; 0: not known yet.
  HostCounters read(int32_t engine_thread);

 private:
  struct Quota {
    std::filesystem::path folder;
    bool is_version_2 = true;
  };
  bool computes(int32_t thread);
  void read_threads(int32_t engine_thread, HostCounters& counters);
  void read_clock(int32_t engine_thread, HostCounters& counters);
  void read_machine(HostCounters& counters);
  void read_quotas(HostCounters& counters);
  /// The file's content, valid until the next call; empty: there is no such file.
  std::string_view content(const std::filesystem::path& path);

  std::filesystem::path proc_, cores_;
  std::vector<Quota> quotas_;         ///< of the process's groups, including outer groups
  std::map<int32_t, bool> computes_;  ///< known threads
  std::string buffer_;
};

/// A source for a sampler: each call returns the changes since the call before. `engine_thread` returns the id of the engine's thread, or 0
/// while there is none; it is called from any thread.
std::function<std::vector<HostSample>()> host_samples(std::function<int32_t()> engine_thread);

}  // namespace minfer
