#include "profiling/json/host_lines.h"

#include <array>
#include <utility>

#include "profiling/json/json_text.h"

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
constexpr int32_t kMostDevices = 1'024;

}  // namespace

void append_host_line(std::string& out, const HostSample& sample) {
  JsonText json(out);
  json.open('{').field("schema", kHostSchema);
  json.field("begin_ns", sample.begin_ns).field("end_ns", sample.end_ns).field("threads", sample.threads);
  for (const auto& [name, quantity] : kQuantities)
    json.field(name, sample.*quantity);
  json.field("switches", sample.switches).field("runnable", sample.runnable);
  json.field("quota_cores", sample.quota_cores).field("disk_faults", sample.disk_faults);
  json.field("swapped_bytes", sample.swapped_bytes).close('}');
  out += '\n';
}

HostSample host_sample_of(const JsonField& line) {
  HostSample sample{.begin_ns = line["begin_ns"].time_ns(),
                    .end_ns = line["end_ns"].time_ns(),
                    .threads = line["threads"].small()};
  for (const auto& [name, quantity] : kQuantities)
    sample.*quantity = line[name].number();
  sample.switches = line["switches"].count();
  sample.runnable = line["runnable"].small();
  sample.quota_cores = line["quota_cores"].number();
  sample.disk_faults = line["disk_faults"].count();
  sample.swapped_bytes = line["swapped_bytes"].bytes();
  return sample;
}

void append_device_line(std::string& out, const DeviceSample& sample) {
  JsonText json(out);
  json.open('{').field("schema", kDeviceSchema);
  json.field("begin_ns", sample.begin_ns).field("end_ns", sample.end_ns).field("device", sample.device);
  for (const auto& [name, number] : kDeviceNumbers)
    json.field(name, sample.*number);
  for (const auto& [name, quantity] : kDeviceQuantities)
    json.field(name, sample.*quantity);
  json.field("other_bytes", sample.other_bytes).close('}');
  out += '\n';
}

DeviceSample device_sample_of(const JsonField& line) {
  DeviceSample sample{.begin_ns = line["begin_ns"].time_ns(),
                      .end_ns = line["end_ns"].time_ns(),
                      .device = line["device"].integer(0, kMostDevices)};
  for (const auto& [name, number] : kDeviceNumbers)
    sample.*number = line[name].small();
  for (const auto& [name, quantity] : kDeviceQuantities)
    sample.*quantity = line[name].number();
  sample.other_bytes = line["other_bytes"].bytes();
  return sample;
}

}  // namespace minfer
