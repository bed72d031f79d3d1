#pragma once

#include <array>

namespace minfer::test {

/// The answers of the library fake_nvml.so, which has those functions of NVML that are used; its symbol `fake_nvml` is a FakeNvml.
struct FakeNvml {
  struct Process {
    unsigned pid = 0;
    unsigned long long used_bytes = 0;
    unsigned gpu_instance = 0, compute_instance = 0;
  };
  std::array<char, 64> uuid{};  ///< of its device, as it was last asked for
  int result = 0;               ///< of all functions but the first two
  unsigned sm_mhz = 1'410;
  unsigned long long clock_reasons = 0x4;
  std::array<Process, 4> processes{};
  unsigned num_processes = 0;
  double traffic_percent = 55.0;
  int metrics_result = 0;
  int samples = 0;  ///< of counters that live
};

}  // namespace minfer::test
