// A stand-in for the driver's library, loaded by the test of the device reader. Structures are those of NVML's documentation.
#include "tests/kernels/fake_nvml.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED minfer::test::FakeNvml fake_nvml;
minfer::test::FakeNvml fake_nvml;

namespace {

struct GpmMetric {
  unsigned metric_id;
  int result;
  double value;
  const char *short_name, *long_name, *unit;
};
struct GpmMetricsGet {
  unsigned version;
  unsigned num_metrics;
  void *sample1, *sample2;
  GpmMetric metrics[1];
};

int device, first_sample;

int answer(unsigned* place, unsigned value) {
  if (fake_nvml.result == 0) *place = value;
  return fake_nvml.result;
}

}  // namespace

EXPORTED int nvmlInit_v2() {
  return 0;
}
EXPORTED int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  std::strncpy(fake_nvml.uuid.data(), uuid, fake_nvml.uuid.size() - 1);
  *handle = &device;
  return std::string_view(uuid).starts_with("GPU-00") ? 0 : 6;
}
EXPORTED int nvmlDeviceGetClockInfo(void*, unsigned kind, unsigned* mhz) {
  return answer(mhz, kind == 1 ? fake_nvml.sm_mhz : kind == 2 ? 3'201 : 7);
}
EXPORTED int nvmlDeviceGetMaxClockInfo(void*, unsigned kind, unsigned* mhz) {
  return answer(mhz, kind == 1 ? 1'980 : kind == 2 ? 3'201 : 7);
}
EXPORTED int nvmlDeviceGetTemperature(void*, unsigned sensor, unsigned* celsius) {
  return answer(celsius, sensor == 0 ? 61 : 7);
}
EXPORTED int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  return answer(milliwatts, 690'500);
}
EXPORTED int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  return answer(milliwatts, 700'000);
}
EXPORTED int nvmlDeviceGetPowerManagementLimitConstraints(void*, unsigned* least, unsigned* most) {
  *least = 200'000;
  return answer(most, 750'000);
}
EXPORTED int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = fake_nvml.clock_reasons;
  return fake_nvml.result;
}
EXPORTED int nvmlDeviceGetTotalEccErrors(void*, unsigned kind, unsigned since, unsigned long long* count) {
  *count = kind == 1 && since == 0 ? 3 : 1'000;
  return fake_nvml.result;
}
EXPORTED int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* generation) {
  return answer(generation, 4);
}
EXPORTED int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* generation) {
  return answer(generation, 5);
}
EXPORTED int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* lanes) {
  return answer(lanes, 8);
}
EXPORTED int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* lanes) {
  return answer(lanes, 16);
}
EXPORTED int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count,
                                                     minfer::test::FakeNvml::Process* processes) {
  const unsigned room = *count;
  *count = fake_nvml.num_processes;
  if (room < fake_nvml.num_processes) return 7;
  std::copy_n(fake_nvml.processes.begin(), fake_nvml.num_processes, processes);
  return fake_nvml.result;
}
EXPORTED int nvmlGpmSampleAlloc(void** sample) {
  if (fake_nvml.result != 0) return fake_nvml.result;
  *sample = &first_sample + ++fake_nvml.samples;
  return 0;
}
EXPORTED int nvmlGpmSampleFree(void*) {
  --fake_nvml.samples;
  return 0;
}
EXPORTED int nvmlGpmSampleGet(void*, void*) {
  return fake_nvml.result;
}
EXPORTED int nvmlGpmMetricsGet(GpmMetricsGet* metrics) {
  if (metrics->version != 1 || metrics->num_metrics != 1 || metrics->sample1 == metrics->sample2) return 2;
  metrics->metrics[0].result = metrics->metrics[0].metric_id == 10 ? fake_nvml.metrics_result : 2;
  metrics->metrics[0].value = fake_nvml.traffic_percent;
  return 0;
}
