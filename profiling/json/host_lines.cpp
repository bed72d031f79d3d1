#include "profiling/json/line_members.h"

namespace minfer {

template <class Json>
void members(Json& json, Is<HostSample> auto& sample) {
  json.told("schema", kHostSchema).member("begin_ns", sample.begin_ns, kTime);
  json.member("end_ns", sample.end_ns, kTime).member("threads", sample.threads);
  json.member("ran_us", sample.ran_us).member("waited_us", sample.waited_us);
  json.member("engine_waited_us", sample.engine_waited_us).member("any_waited_us", sample.any_waited_us);
  json.member("stolen_us", sample.stolen_us).member("throttled_us", sample.throttled_us);
  json.member("disk_stalled_us", sample.disk_stalled_us);
  json.member("memory_stalled_us", sample.memory_stalled_us);
  json.member("switches", sample.switches).member("runnable", sample.runnable);
  json.member("quota_cores", sample.quota_cores).member("disk_faults", sample.disk_faults);
  json.member("swapped_bytes", sample.swapped_bytes, kBytes);
  json.optional("file_bytes", sample.file_bytes, kBytes).optional("core_mhz", sample.core_mhz);
  json.optional("most_core_mhz", sample.most_core_mhz);
}

template <class Json>
void members(Json& json, Is<DeviceSample> auto& sample) {
  json.told("schema", kDeviceSchema).member("begin_ns", sample.begin_ns, kTime);
  json.member("end_ns", sample.end_ns, kTime).member("device", sample.device, kInteger<0, 1'024>);
  json.member("sm_mhz", sample.sm_mhz).member("most_sm_mhz", sample.most_sm_mhz);
  json.member("memory_mhz", sample.memory_mhz).member("most_memory_mhz", sample.most_memory_mhz);
  json.member("clock_reasons", sample.clock_reasons).member("temperature_c", sample.temperature_c);
  json.member("pcie_generation", sample.pcie_generation);
  json.member("most_pcie_generation", sample.most_pcie_generation);
  json.member("pcie_width", sample.pcie_width).member("most_pcie_width", sample.most_pcie_width);
  json.member("ecc_errors", sample.ecc_errors).member("other_processes", sample.other_processes);
  json.member("power_w", sample.power_w).member("power_limit_w", sample.power_limit_w);
  json.member("most_power_limit_w", sample.most_power_limit_w);
  json.member("memory_traffic", sample.memory_traffic).member("other_bytes", sample.other_bytes, kBytes);
}

template struct JsonOf<HostSample>;
template struct JsonOf<DeviceSample>;

}  // namespace minfer
