// NVML's header comes in a separate package, so its types and numbers are declared here. Its functions return 0 for success.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/device_sample.h"

namespace minfer {
namespace {

constexpr unsigned kSmClock = 1, kMemoryClock = 2, kCoreSensor = 0, kUncorrected = 1, kSinceLoaded = 0;
constexpr unsigned kMemoryTraffic = 10;
constexpr int64_t kRare = 10;  // one in this many readings asks for values that change slowly

struct NvmlProcess {
  unsigned pid = 0;
  unsigned long long used_bytes = 0;
  unsigned gpu_instance = 0, compute_instance = 0;
};

/// A metric of the time between two samples of counters (GPM, since Hopper).
struct NvmlMetrics {
  unsigned version = 1, count = 1;
  void *from = nullptr, *to = nullptr;
  unsigned metric = kMemoryTraffic;
  int result = 0;
  double value = 0.0;
  std::array<const char*, 3> names{};
};

/// False: this library has no such function, or it failed.
template <class... Arguments>
bool call_nvml(void* library, const char* symbol, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, symbol));
  return function != nullptr && function(arguments...) == 0;
}

/// Formats the 32 digits as NVML does.
std::string nvml_uuid(std::string_view id) {
  std::string uuid = "GPU";
  for (const size_t length : {8u, 4u, 4u, 4u, 12u}) {
    uuid += fmt::format("-{}", id.substr(0, length));
    id.remove_prefix(std::min<size_t>(length, id.size()));
  }
  return uuid;
}

class NvmlDevice {
 public:
  NvmlDevice(void* library, void* handle, int32_t rank) : library_(library), handle_(handle) {
    sample_.device = rank;
    sample_.end_ns = now_ns();
    sample_.most_sm_mhz = value<unsigned>("nvmlDeviceGetMaxClockInfo", kSmClock);
    sample_.most_memory_mhz = value<unsigned>("nvmlDeviceGetMaxClockInfo", kMemoryClock);
    sample_.most_pcie_generation = value<unsigned>("nvmlDeviceGetMaxPcieLinkGeneration");
    sample_.most_pcie_width = value<unsigned>("nvmlDeviceGetMaxPcieLinkWidth");
    unsigned least = 0, most = 0;
    if (call("nvmlDeviceGetPowerManagementLimitConstraints", &least, &most))
      sample_.most_power_limit_w = most * 1e-3;
    for (void*& counters : counters_) {
      if (!call_nvml(library_, "nvmlGpmSampleAlloc", &counters)) counters = nullptr;
    }
  }
  ~NvmlDevice() {
    for (void* const counters : counters_) {
      if (counters != nullptr) call_nvml(library_, "nvmlGpmSampleFree", counters);
    }
  }
  NvmlDevice(const NvmlDevice&) = delete;
  NvmlDevice& operator=(const NvmlDevice&) = delete;

  const DeviceSample& read(bool rare) {
    sample_.sm_mhz = value<unsigned>("nvmlDeviceGetClockInfo", kSmClock);
    sample_.memory_mhz = value<unsigned>("nvmlDeviceGetClockInfo", kMemoryClock);
    // The name that all versions have.
    sample_.clock_reasons = value<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons");
    sample_.temperature_c = value<unsigned>("nvmlDeviceGetTemperature", kCoreSensor);
    sample_.power_w = value<unsigned>("nvmlDeviceGetPowerUsage") * 1e-3;
    sample_.power_limit_w = value<unsigned>("nvmlDeviceGetEnforcedPowerLimit") * 1e-3;
    if (rare) {
      sample_.pcie_generation = value<unsigned>("nvmlDeviceGetCurrPcieLinkGeneration");
      sample_.pcie_width = value<unsigned>("nvmlDeviceGetCurrPcieLinkWidth");
      sample_.ecc_errors =
          value<unsigned long long>("nvmlDeviceGetTotalEccErrors", kUncorrected, kSinceLoaded);
      read_processes();
      read_traffic();
    }
    sample_.begin_ns = std::exchange(sample_.end_ns, now_ns());
    return sample_;
  }

 private:
  template <class... Arguments>
  bool call(const char* symbol, Arguments... arguments) const {
    return call_nvml(library_, symbol, handle_, arguments...);
  }
  /// 0: the device does not say.
  template <class Number, class... Kind>
  int32_t value(const char* symbol, Kind... kind) const {
    constexpr Number kMost = 1 << 28;  // more is no measurement
    Number value = 0;
    return call(symbol, kind..., &value) ? static_cast<int32_t>(std::min(value, kMost)) : 0;
  }

  void read_processes() {
    std::array<NvmlProcess, 128> processes;
    auto count = static_cast<unsigned>(processes.size());
    if (!call("nvmlDeviceGetComputeRunningProcesses_v3", &count, processes.data())) count = 0;
    sample_.other_processes = static_cast<int32_t>(std::min<size_t>(count, processes.size()));
    sample_.other_bytes = 0;
    const auto all = std::span(processes).first(static_cast<size_t>(sample_.other_processes));
    const bool is_listed = std::ranges::count(all, static_cast<unsigned>(::getpid()), &NvmlProcess::pid) > 0;
    // One of them is this process. In a container the numbers may be the host's: then it is not known which one.
    if (sample_.other_processes > 0) --sample_.other_processes;
    for (const NvmlProcess& process : all) {
      constexpr unsigned long long kMostBytes = 1ull << 40;  // all bits: not known
      if (is_listed && process.pid != static_cast<unsigned>(::getpid()) && process.used_bytes < kMostBytes)
        sample_.other_bytes += static_cast<int64_t>(process.used_bytes);
    }
  }

  void read_traffic() {
    sample_.memory_traffic = 0.0;
    if (counters_[0] == nullptr || counters_[1] == nullptr) return;
    std::swap(counters_[0], counters_[1]);
    const bool had_counters = std::exchange(has_counters_, call("nvmlGpmSampleGet", counters_[1]));
    NvmlMetrics span{.from = counters_[0], .to = counters_[1]};
    if (!had_counters || !has_counters_ || !call_nvml(library_, "nvmlGpmMetricsGet", &span)) return;
    if (span.result == 0 && span.value > 0.0) sample_.memory_traffic = std::min(0.01 * span.value, 1.0);
  }

  void* const library_;
  void* const handle_;
  DeviceSample sample_;
  std::array<void*, 2> counters_{};  ///< the second is the newer
  bool has_counters_ = false;        ///< the newer one has been taken
};

}  // namespace

DeviceReader make_device_reader(std::span<const std::string> ids, const char* library) {
  void* const nvml = ids.empty() ? nullptr : dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr || !call_nvml(nvml, "nvmlInit_v2")) return {};
  std::vector<std::shared_ptr<NvmlDevice>> devices;
  for (size_t rank = 0; rank < ids.size(); ++rank) {
    const std::string uuid = nvml_uuid(ids[rank]);
    void* handle = nullptr;
    if (call_nvml(nvml, "nvmlDeviceGetHandleByUUID", uuid.c_str(), &handle))
      devices.push_back(std::make_shared<NvmlDevice>(nvml, handle, static_cast<int32_t>(rank)));
  }
  if (devices.empty()) return {};
  return [devices, number = int64_t{0}]() mutable {
    std::vector<DeviceSample> samples;
    const bool rare = number++ % kRare == 0;
    for (const std::shared_ptr<NvmlDevice>& device : devices)
      samples.push_back(device->read(rare));
    return samples;
  };
}

}  // namespace minfer
