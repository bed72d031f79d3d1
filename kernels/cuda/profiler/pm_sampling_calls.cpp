#if __has_include(<cupti_pmsampling.h>)

#include "kernels/cuda/profiler/pm_sampling_calls.h"

#include <mutex>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"

namespace minfer::cuda {
namespace {

std::mutex g_users_mutex;
int g_users = 0;  ///< calls of initialize() without deinitialize() yet; guarded by the mutex

constexpr int kHardwareBusy = 26;
constexpr int kInsufficientPrivileges = 35;
constexpr int kVirtualizedInsufficientPrivileges = 40;

std::string_view advice(int status) {
  switch (status) {
    case kHardwareBusy:
      return ": another tool holds the counters (ncu, nsys --gpu-metrics-devices, or DCGM, which `dcgmi "
             "profile "
             "--pause` stops): end it and try again";
    case kInsufficientPrivileges:
    case kVirtualizedInsufficientPrivileges:
      return ": the driver lets administrators only read counters: load the kernel module with "
             "NVreg_RestrictProfilingToAdminUsers=0 (options nvidia ... in /etc/modprobe.d), or run with "
             "CAP_SYS_ADMIN";
    default:
      return "";
  }
}

}  // namespace

void PmSamplingCalls::check(CUptiResult status, const char* function) const {
  if (status == CUPTI_SUCCESS) return;
  const char* status_name = nullptr;
  if (get_result_string_(status, &status_name) != CUPTI_SUCCESS) status_name = nullptr;
  fail<DeviceError>("{}: {} ({}){}", function, status_name != nullptr ? status_name : "unknown status",
                    static_cast<int>(status), advice(static_cast<int>(status)));
}

void PmSamplingCalls::initialize() const {
  const std::lock_guard lock(g_users_mutex);
  if (g_users > 0) {
    ++g_users;
    return;
  }
  auto params = MINFER_CUPTI_PARAMS(Profiler_Initialize);
  CUptiResult status = profiler_initialize_(&params);
  if (status == CUPTI_ERROR_NOT_INITIALIZED) {
    // A trace has detached CUPTI (cuptiFinalize): a subscription attaches it again.
    CUpti_SubscriberHandle subscriber = nullptr;
    const auto ignore = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
    check(subscribe_(&subscriber, ignore, nullptr), "cuptiSubscribe");
    unsubscribe_(subscriber);
    status = profiler_initialize_(&params);
  }
  check(status, "cuptiProfilerInitialize");
  g_users = 1;
}

void PmSamplingCalls::deinitialize() const noexcept {
  const std::lock_guard lock(g_users_mutex);
  if (--g_users > 0) return;
  auto params = MINFER_CUPTI_PARAMS(Profiler_DeInitialize);
  profiler_deinitialize_(&params);
}

std::string PmSamplingCalls::chip_name(size_t device) const {
  auto params = MINFER_CUPTI_PARAMS(Device_GetChipName);
  params.deviceIndex = device;
  check(get_chip_name_(&params), "cuptiDeviceGetChipName");
  return params.pChipName != nullptr ? params.pChipName : "";
}

std::vector<uint8_t> PmSamplingCalls::counter_availability(size_t device) const {
  auto params = MINFER_CUPTI_PARAMS(PmSampling_GetCounterAvailability);
  params.deviceIndex = device;
  check(get_availability_(&params), "cuptiPmSamplingGetCounterAvailability");
  std::vector<uint8_t> image(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = image.data();
  check(get_availability_(&params), "cuptiPmSamplingGetCounterAvailability");
  return image;
}

CUpti_PmSampling_Object* PmSamplingCalls::enable(size_t device) const {
  auto params = MINFER_CUPTI_PARAMS(PmSampling_Enable);
  params.deviceIndex = device;
  check(enable_(&params), "cuptiPmSamplingEnable");
  return params.pPmSamplingObject;
}

void PmSamplingCalls::disable(CUpti_PmSampling_Object* sampling) const noexcept {
  auto params = MINFER_CUPTI_PARAMS(PmSampling_Disable);
  params.pPmSamplingObject = sampling;
  disable_(&params);
}

void PmSamplingCalls::set_config(CUpti_PmSampling_Object* sampling, std::span<const uint8_t> config,
                                 int64_t interval_ns, size_t buffer_bytes) const {
  auto params = MINFER_CUPTI_PARAMS(PmSampling_SetConfig);
  params.pPmSamplingObject = sampling;
  params.configSize = config.size();
  params.pConfig = config.data();
  params.hardwareBufferSize = buffer_bytes;
  params.samplingInterval = static_cast<uint64_t>(interval_ns);
  params.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
  params.hwBufferAppendMode = CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
  check(set_config_(&params), "cuptiPmSamplingSetConfig");
}

void PmSamplingCalls::start(CUpti_PmSampling_Object* sampling) const {
  auto params = MINFER_CUPTI_PARAMS(PmSampling_Start);
  params.pPmSamplingObject = sampling;
  check(start_(&params), "cuptiPmSamplingStart");
}

void PmSamplingCalls::stop(CUpti_PmSampling_Object* sampling) const {
  auto params = MINFER_CUPTI_PARAMS(PmSampling_Stop);
  params.pPmSamplingObject = sampling;
  check(stop_(&params), "cuptiPmSamplingStop");
}

std::vector<uint8_t> PmSamplingCalls::make_image(CUpti_PmSampling_Object* sampling,
                                                 std::span<const char* const> metrics,
                                                 uint32_t samples) const {
  std::vector<const char*> names(metrics.begin(), metrics.end());
  auto params = MINFER_CUPTI_PARAMS(PmSampling_GetCounterDataSize);
  params.pPmSamplingObject = sampling;
  params.pMetricNames = names.data();
  params.numMetrics = names.size();
  params.maxSamples = samples;
  check(get_image_size_(&params), "cuptiPmSamplingGetCounterDataSize");
  std::vector<uint8_t> image(params.counterDataSize);
  clear_image(sampling, image);
  return image;
}

void PmSamplingCalls::clear_image(CUpti_PmSampling_Object* sampling, std::span<uint8_t> image) const {
  auto params = MINFER_CUPTI_PARAMS(PmSampling_CounterDataImage_Initialize);
  params.pPmSamplingObject = sampling;
  params.counterDataSize = image.size();
  params.pCounterData = image.data();
  check(initialize_image_(&params), "cuptiPmSamplingCounterDataImageInitialize");
}

PmSamplingCalls::Decoded PmSamplingCalls::decode(CUpti_PmSampling_Object* sampling,
                                                 std::span<uint8_t> image) const {
  auto params = MINFER_CUPTI_PARAMS(PmSampling_DecodeData);
  params.pPmSamplingObject = sampling;
  params.pCounterDataImage = image.data();
  params.counterDataImageSize = image.size();
  const CUptiResult status = decode_(&params);
  if (status == CUPTI_ERROR_OUT_OF_MEMORY || params.overflow != 0)
    return {.samples = 0, .is_last = true, .image_full = false, .overflowed = true};
  check(status, "cuptiPmSamplingDecodeData");
  auto info = MINFER_CUPTI_PARAMS(PmSampling_GetCounterDataInfo);
  info.pCounterDataImage = image.data();
  info.counterDataImageSize = image.size();
  check(get_image_info_(&info), "cuptiPmSamplingGetCounterDataInfo");
  return {.samples = info.numCompletedSamples,
          .is_last = params.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS,
          .image_full = params.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL};
}

PmSamplingCalls::Times PmSamplingCalls::sample_times(CUpti_PmSampling_Object* sampling,
                                                     std::span<const uint8_t> image, size_t sample) const {
  auto params = MINFER_CUPTI_PARAMS(PmSampling_CounterData_GetSampleInfo);
  params.pPmSamplingObject = sampling;
  params.pCounterDataImage = image.data();
  params.counterDataImageSize = image.size();
  params.sampleIndex = sample;
  check(get_sample_info_(&params), "cuptiPmSamplingCounterDataGetSampleInfo");
  return {params.startTimestamp, params.endTimestamp};
}

uint64_t PmSamplingCalls::timestamp_ns() const {
  uint64_t time = 0;
  check(get_timestamp_(&time), "cuptiGetTimestamp");
  return time;
}

PmSamplingCalls::Host::Host(const PmSamplingCalls& calls, CUpti_ProfilerType type, const std::string& chip,
                            std::span<const uint8_t> availability, std::span<const char* const> metrics)
    : calls_(&calls) {
  auto params = MINFER_CUPTI_PARAMS(Profiler_Host_Initialize);
  params.profilerType = type;
  params.pChipName = chip.c_str();
  params.pCounterAvailabilityImage = availability.empty() ? nullptr : availability.data();
  calls.check(calls.host_initialize_(&params), "cuptiProfilerHostInitialize");
  object_ = params.pHostObject;
  std::vector<const char*> names(metrics.begin(), metrics.end());
  auto add = MINFER_CUPTI_PARAMS(Profiler_Host_ConfigAddMetrics);
  add.pHostObject = object_;
  add.ppMetricNames = names.data();
  add.numMetrics = names.size();
  Host owner(std::move(*this));  // gives the object back if a metric is refused
  calls.check(calls.host_add_metrics_(&add), "cuptiProfilerHostConfigAddMetrics");
  *this = std::move(owner);
}

PmSamplingCalls::Host::~Host() {
  if (object_ == nullptr) return;
  auto params = MINFER_CUPTI_PARAMS(Profiler_Host_Deinitialize);
  params.pHostObject = object_;
  calls_->host_deinitialize_(&params);
}

PmSamplingCalls::Host::Host(Host&& other) noexcept
    : calls_(other.calls_), object_(std::exchange(other.object_, nullptr)) {}

PmSamplingCalls::Host& PmSamplingCalls::Host::operator=(Host&& other) noexcept {
  std::swap(calls_, other.calls_);
  std::swap(object_, other.object_);
  return *this;
}

std::vector<uint8_t> PmSamplingCalls::Host::config_image() const {
  auto size = MINFER_CUPTI_PARAMS(Profiler_Host_GetConfigImageSize);
  size.pHostObject = object_;
  calls_->check(calls_->host_image_size_(&size), "cuptiProfilerHostGetConfigImageSize");
  std::vector<uint8_t> image(size.configImageSize);
  auto params = MINFER_CUPTI_PARAMS(Profiler_Host_GetConfigImage);
  params.pHostObject = object_;
  params.configImageSize = image.size();
  params.pConfigImage = image.data();
  calls_->check(calls_->host_image_(&params), "cuptiProfilerHostGetConfigImage");
  return image;
}

size_t PmSamplingCalls::Host::passes() const {
  std::vector<uint8_t> image = config_image();
  auto params = MINFER_CUPTI_PARAMS(Profiler_Host_GetNumOfPasses);
  params.configImageSize = image.size();
  params.pConfigImage = image.data();
  calls_->check(calls_->host_passes_(&params), "cuptiProfilerHostGetNumOfPasses");
  return params.numOfPasses;
}

void PmSamplingCalls::Host::evaluate(std::span<const uint8_t> image, size_t sample,
                                     std::span<const char* const> metrics, double* values) const {
  auto params = MINFER_CUPTI_PARAMS(Profiler_Host_EvaluateToGpuValues);
  params.pHostObject = object_;
  params.pCounterDataImage = image.data();
  params.counterDataImageSize = image.size();
  params.rangeIndex = sample;
  params.ppMetricNames = const_cast<const char**>(metrics.data());  // not written to; C lacks the const
  params.numMetrics = metrics.size();
  params.pMetricValues = values;
  calls_->check(calls_->host_evaluate_(&params), "cuptiProfilerHostEvaluateToGpuValues");
}

}  // namespace minfer::cuda

#endif  // __has_include(<cupti_pmsampling.h>)
