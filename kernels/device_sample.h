#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace minfer {

/// The reasons why a device's clock is not higher: bits as in NVML and `nvidia-smi --query-gpu=clocks_event_reasons.active`.
namespace clock_reason {
inline constexpr int32_t idle = 0x1, setting = 0x2, power_limit = 0x4, slowdown = 0x8, heat = 0x20,
                         slowdown_by_heat = 0x40, power_brake = 0x80;
}

/// A device's report at the end of a span of time. A field that it does not report is 0.
struct DeviceSample {
  int64_t begin_ns = 0;  ///< now_ns()
  int64_t end_ns = 0;
  int32_t device = 0;  ///< the rank that runs on it
  int32_t sm_mhz = 0, most_sm_mhz = 0;
  int32_t memory_mhz = 0, most_memory_mhz = 0;
  int32_t clock_reasons = 0;
  int32_t temperature_c = 0;
  double power_w = 0.0;  ///< on GPUs since Ampere the mean of a second
  double power_limit_w = 0.0;
  double most_power_limit_w = 0.0;  ///< the most that an administrator could set
  // The fields below are read once a second.
  int32_t pcie_generation = 0, most_pcie_generation = 0;
  int32_t pcie_width = 0, most_pcie_width = 0;
  int32_t ecc_errors = 0;       ///< uncorrected ones since the driver was loaded
  int32_t other_processes = 0;  ///< that compute on it
  int64_t other_bytes = 0;      ///< the device's memory that they use
  double memory_traffic = 0.0;  ///< of all processes, share of what the memory could move: mean of a second

  /// Extends this sample over the next one: one reading for several spans.
  void add(const DeviceSample& next) {
    const int64_t first_ns = begin_ns;
    *this = next;
    begin_ns = first_ns;
  }
};

/// Reads all devices of this process. One thread at a time. Empty: nothing can be read.
using DeviceReader = std::function<std::vector<DeviceSample>()>;
/// Reads through NVML, the driver's library, which is loaded here and never closed; the program runs without it. `ids`: UUIDs
/// (CudaDevice::id), rank 0's first. Devices that NVML does not know, such as parts of a device, are left out.
DeviceReader make_device_reader(std::span<const std::string> ids, const char* library = "libnvidia-ml.so.1");

}  // namespace minfer
