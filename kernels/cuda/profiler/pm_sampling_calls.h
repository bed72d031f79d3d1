#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <cupti.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>

#include "kernels/cuda/profiler/cupti_library.h"

namespace minfer::cuda {

template <class Params>
Params sized_params(size_t size) {
  Params params{};
  params.structSize = size;
  return params;
}
/// A call's parameters, empty except for their size, which tells the library which fields its caller has.
#define MINFER_CUPTI_PARAMS(call) sized_params<CUpti_##call##_Params>(CUpti_##call##_Params_STRUCT_SIZE)

/// The functions of CUPTI for PM sampling. All throw DeviceError with the call and its status. The constructor
/// throws it if there is no library, or one without PM sampling (before 12.6).
class PmSamplingCalls : protected CuptiFunctions {
 public:
  /// Once per process, for several users (one sampler a device). The last of equally many calls of deinitialize() undoes it.
  void initialize() const;
  void deinitialize() const noexcept;
  std::string chip_name(size_t device) const;
  /// The counters that the device can read now; evaluation needs them.
  std::vector<uint8_t> counter_availability(size_t device) const;

  CUpti_PmSampling_Object* enable(size_t device) const;
  void disable(CUpti_PmSampling_Object* sampling) const noexcept;
  /// Takes samples at a fixed interval into `buffer_bytes` of host memory.
  void set_config(CUpti_PmSampling_Object* sampling, std::span<const uint8_t> config, int64_t interval_ns,
                  size_t buffer_bytes) const;
  void start(CUpti_PmSampling_Object* sampling) const;
  void stop(CUpti_PmSampling_Object* sampling) const;

  /// An empty image with `samples` slots for `metrics`.
  std::vector<uint8_t> make_image(CUpti_PmSampling_Object* sampling, std::span<const char* const> metrics,
                                  uint32_t samples) const;
  void clear_image(CUpti_PmSampling_Object* sampling, std::span<uint8_t> image) const;
  struct Decoded {
    size_t samples = 0;
    bool is_last = false;     ///< nothing is left to decode
    bool image_full = false;  ///< the rest is lost
    bool overflowed =
        false;  ///< the hardware's buffer did: all is lost, and nothing more comes until disable()
  };
  Decoded decode(CUpti_PmSampling_Object* sampling, std::span<uint8_t> image) const;
  struct Times {
    uint64_t begin_ns = 0;
    uint64_t end_ns = 0;
  };
  Times sample_times(CUpti_PmSampling_Object* sampling, std::span<const uint8_t> image, size_t sample) const;
  uint64_t timestamp_ns() const;  ///< the clock of CUPTI's other records

  /// Turns metric names into counters, and counters into values. One thread at a time for each object.
  class Host {
   public:
    Host() = default;
    /// Throws if a metric is not known, or not available by `availability` (empty: not checked).
    Host(const PmSamplingCalls& calls, CUpti_ProfilerType type, const std::string& chip,
         std::span<const uint8_t> availability, std::span<const char* const> metrics);
    ~Host();
    Host(Host&& other) noexcept;
    Host& operator=(Host&& other) noexcept;

    std::vector<uint8_t> config_image() const;
    /// How often the measured work has to run. More than one: it cannot be sampled.
    size_t passes() const;
    void evaluate(std::span<const uint8_t> image, size_t sample, std::span<const char* const> metrics,
                  double* values) const;

   private:
    const PmSamplingCalls* calls_ = nullptr;
    CUpti_Profiler_Host_Object* object_ = nullptr;
  };

  /// Throws DeviceError with the call, its status and, where it is known, a remedy.
  void check(CUptiResult status, const char* function) const;

 private:
  CuptiHold hold_;
  MINFER_CUPTI_FUNCTION(get_result_string_, cuptiGetResultString);
  MINFER_CUPTI_FUNCTION(get_timestamp_, cuptiGetTimestamp);
  MINFER_CUPTI_FUNCTION(subscribe_, cuptiSubscribe);
  MINFER_CUPTI_FUNCTION(unsubscribe_, cuptiUnsubscribe);
  MINFER_CUPTI_FUNCTION(profiler_initialize_, cuptiProfilerInitialize);
  MINFER_CUPTI_FUNCTION(profiler_deinitialize_, cuptiProfilerDeInitialize);
  MINFER_CUPTI_FUNCTION(get_chip_name_, cuptiDeviceGetChipName);
  MINFER_CUPTI_FUNCTION(get_availability_, cuptiPmSamplingGetCounterAvailability);
  MINFER_CUPTI_FUNCTION(enable_, cuptiPmSamplingEnable);
  MINFER_CUPTI_FUNCTION(disable_, cuptiPmSamplingDisable);
  MINFER_CUPTI_FUNCTION(set_config_, cuptiPmSamplingSetConfig);
  MINFER_CUPTI_FUNCTION(start_, cuptiPmSamplingStart);
  MINFER_CUPTI_FUNCTION(stop_, cuptiPmSamplingStop);
  MINFER_CUPTI_FUNCTION(decode_, cuptiPmSamplingDecodeData);
  MINFER_CUPTI_FUNCTION(get_image_size_, cuptiPmSamplingGetCounterDataSize);
  MINFER_CUPTI_FUNCTION(initialize_image_, cuptiPmSamplingCounterDataImageInitialize);
  MINFER_CUPTI_FUNCTION(get_image_info_, cuptiPmSamplingGetCounterDataInfo);
  MINFER_CUPTI_FUNCTION(get_sample_info_, cuptiPmSamplingCounterDataGetSampleInfo);
  MINFER_CUPTI_FUNCTION(host_initialize_, cuptiProfilerHostInitialize);
  MINFER_CUPTI_FUNCTION(host_deinitialize_, cuptiProfilerHostDeinitialize);
  MINFER_CUPTI_FUNCTION(host_add_metrics_, cuptiProfilerHostConfigAddMetrics);
  MINFER_CUPTI_FUNCTION(host_image_size_, cuptiProfilerHostGetConfigImageSize);
  MINFER_CUPTI_FUNCTION(host_image_, cuptiProfilerHostGetConfigImage);
  MINFER_CUPTI_FUNCTION(host_passes_, cuptiProfilerHostGetNumOfPasses);
  MINFER_CUPTI_FUNCTION(host_evaluate_, cuptiProfilerHostEvaluateToGpuValues);
};

}  // namespace minfer::cuda
