#include <array>
#include <utility>

#include "profiling/json/line_members.h"

namespace minfer {
namespace {

constexpr std::array<std::pair<std::string_view, double HostSample::*>, 8> kQuantities{
    {{"ran_us", &HostSample::ran_us},
     {"waited_us", &HostSample::waited_us},
     {"engine_waited_us", &HostSample::engine_waited_us},
     {"any_waited_us", &HostSample::any_waited_us},
     {"stolen_us", &HostSample::stolen_us},
     {"throttled_us", &HostSample::throttled_us},
     {"disk_stalled_us", &HostSample::disk_stalled_us},
     {"memory_stalled_us", &HostSample::memory_stalled_us}}};

constexpr std::array<std::pair<std::string_view, int32_t DeviceSample::*>, 12> kDeviceNumbers{
    {{"sm_mhz", &DeviceSample::sm_mhz},
     {"most_sm_mhz", &DeviceSample::most_sm_mhz},
     {"memory_mhz", &DeviceSample::memory_mhz},
     {"most_memory_mhz", &DeviceSample::most_memory_mhz},
     {"clock_reasons", &DeviceSample::clock_reasons},
     {"temperature_c", &DeviceSample::temperature_c},
     {"pcie_generation", &DeviceSample::pcie_generation},
     {"most_pcie_generation", &DeviceSample::most_pcie_generation},
     {"pcie_width", &DeviceSample::pcie_width},
     {"most_pcie_width", &DeviceSample::most_pcie_width},
     {"ecc_errors", &DeviceSample::ecc_errors},
     {"other_processes", &DeviceSample::other_processes}}};
constexpr std::array<std::pair<std::string_view, double DeviceSample::*>, 4> kDeviceQuantities{
    {{"power_w", &DeviceSample::power_w},
     {"power_limit_w", &DeviceSample::power_limit_w},
     {"most_power_limit_w", &DeviceSample::most_power_limit_w},
     {"memory_traffic", &DeviceSample::memory_traffic}}};
constexpr auto kDevice = [](const JsonField& field) { return field.integer(0, 1'024); };

}  // namespace

template <class Json>
void members(Json& json, Is<HostSample> auto& sample) {
  json.member("begin_ns", sample.begin_ns, kTime).member("end_ns", sample.end_ns, kTime);
  json.member("threads", sample.threads, kSmall);
  for (const auto& [name, quantity] : kQuantities)
    json.member(name, sample.*quantity, kNumber);
  json.member("switches", sample.switches, kCount).member("runnable", sample.runnable, kSmall);
  json.member("quota_cores", sample.quota_cores, kNumber).member("disk_faults", sample.disk_faults, kCount);
  json.member("swapped_bytes", sample.swapped_bytes, kBytes);
}

template <class Json>
void members(Json& json, Is<DeviceSample> auto& sample) {
  json.member("begin_ns", sample.begin_ns, kTime).member("end_ns", sample.end_ns, kTime);
  json.member("device", sample.device, kDevice);
  for (const auto& [name, number] : kDeviceNumbers)
    json.member(name, sample.*number, kSmall);
  for (const auto& [name, quantity] : kDeviceQuantities)
    json.member(name, sample.*quantity, kNumber);
  json.member("other_bytes", sample.other_bytes, kBytes);
}

template void append_line(std::string&, const HostSample&);
template HostSample line_of(const JsonField&);
template void append_line(std::string&, const DeviceSample&);
template DeviceSample line_of(const JsonField&);

}  // namespace minfer
