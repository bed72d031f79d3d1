#pragma once

#include <algorithm>
#include <cstdint>

namespace minfer {

/// The machine's effects on this process between two instants. "Threads" are the computing threads: the engine's and its pool's, as
/// far as they lived at both instants.
struct HostSample {
  int64_t begin_ns = 0;  ///< now_ns()
  int64_t end_ns = 0;
  int32_t threads = 0;            ///< 0: the system has no counters of threads
  double ran_us = 0.0;            ///< on a core, summed over the threads
  double waited_us = 0.0;         ///< ready to run, without a core, summed over the threads
  double engine_waited_us = 0.0;  ///< part of the engine's thread, which every step needs
  double any_waited_us = 0.0;  ///< with at least one thread waiting, if they wait independently of each other
  int64_t switches = 0;        ///< times that the engine's thread lost its core
  int32_t runnable = 0;        ///< threads of the whole machine that ran or waited for a core at the end
  double stolen_us = 0.0;      ///< time that a hypervisor gave to others, mean over cores
  double throttled_us = 0.0;   ///< time that a control group's quota held threads back, summed over cores
  double quota_cores = 0.0;    ///< cores that the quota allows; 0: there is no quota
  int64_t disk_faults = 0;     ///< pages that threads of the process had to wait for
  double disk_stalled_us = 0.0;    ///< with a thread of the machine waiting for a disk
  double memory_stalled_us = 0.0;  ///< with a thread of the machine waiting for memory
  int64_t swapped_bytes = 0;       ///< of the process, at the end
  int64_t file_bytes = 0;  ///< of mapped files, such as a model, that are in the process's memory at the end
  double core_mhz = 0.0;   ///< clock of the core on which the engine's thread ran last; 0: not known
  double most_core_mhz = 0.0;  ///< the highest clock of that core

  double wall_us() const { return static_cast<double>(end_ns - begin_ns) * 1e-3; }

  /// Adds the next sample to this.
  void add(const HostSample& next) {
    core_mhz =
        (core_mhz * wall_us() + next.core_mhz * next.wall_us()) / std::max(1.0, wall_us() + next.wall_us());
    most_core_mhz = std::max(most_core_mhz, next.most_core_mhz);
    if (begin_ns == 0) begin_ns = next.begin_ns;
    end_ns = next.end_ns;
    threads = std::max(threads, next.threads);
    ran_us += next.ran_us;
    waited_us += next.waited_us;
    engine_waited_us += next.engine_waited_us;
    any_waited_us += next.any_waited_us;
    switches += next.switches;
    runnable = std::max(runnable, next.runnable);
    stolen_us += next.stolen_us;
    throttled_us += next.throttled_us;
    quota_cores = next.quota_cores;
    disk_faults += next.disk_faults;
    disk_stalled_us += next.disk_stalled_us;
    memory_stalled_us += next.memory_stalled_us;
    swapped_bytes = next.swapped_bytes;
    file_bytes = next.file_bytes;
  }
};

}  // namespace minfer
