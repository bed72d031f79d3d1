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
/// A call's parameters, empty but for their size, by which the library knows which fields its caller has.
#define MINFER_CUPTI_PARAMS(call) sized_params<CUpti_##call##_Params>(CUpti_##call##_Params_STRUCT_SIZE)

/// The functions of CUPTI that PM sampling takes. All throw DeviceError naming the call and its status, and the
/// constructor if there is no library, or one without PM sampling (before 12.6).
class PmSamplingCalls : protected CuptiFunctions {
 public:
  /// Of the process, for who may be several (a sampler a device): what the last one takes back, after as many calls of deinitialize().
  void initialize() const;
  void deinitialize() const noexcept;
  std::string chip_name(size_t device) const;
  /// Which counters the device can read now: needed for evaluation.
  std::vector<uint8_t> counter_availability(size_t device) const;

  CUpti_PmSampling_Object* enable(size_t device) const;
  void disable(CUpti_PmSampling_Object* sampling) const noexcept;
  /// Samples of fixed time into `buffer_bytes` of host memory.
  void set_config(CUpti_PmSampling_Object* sampling, std::span<const uint8_t> config, int64_t interval_ns,
                  size_t buffer_bytes) const;
  void start(CUpti_PmSampling_Object* sampling) const;
  void stop(CUpti_PmSampling_Object* sampling) const;

  /// An empty image of `samples` slots for `metrics`.
  std::vector<uint8_t> make_image(CUpti_PmSampling_Object* sampling, std::span<const char* const> metrics,
                                  uint32_t samples) const;
  void clear_image(CUpti_PmSampling_Object* sampling, std::span<uint8_t> image) const;
  struct Decoded {
    size_t samples = 0;
    bool is_last = false;     ///< nothing is left to be decoded
    bool image_full = false;  ///< the rest is lost
    bool overflowed =
        false;  ///< of the hardware's buffer: all is lost, and nothing more comes until disabled
  };
  Decoded decode(CUpti_PmSampling_Object* sampling, std::span<uint8_t> image) const;
  struct Times {
    uint64_t begin_ns = 0;
    uint64_t end_ns = 0;
  };
  Times sample_times(CUpti_PmSampling_Object* sampling, std::span<const uint8_t> image, size_t sample) const;
  uint64_t timestamp_ns() const;  ///< the clock of CUPTI's other records

  /// What turns metric names into counters and counters into values. One thread at a time each.
  class Host {
   public:
    Host() = default;
    /// Throws if a metric is not known or, by `availability` (empty: not asked), not available.
    Host(const PmSamplingCalls& calls, CUpti_ProfilerType type, const std::string& chip,
         std::span<const uint8_t> availability, std::span<const char* const> metrics);
    ~Host();
    Host(Host&& other) noexcept;
    Host& operator=(Host&& other) noexcept;

    std::vector<uint8_t> config_image() const;
    /// Times that what is measured has to run. More than one: it cannot be sampled.
    size_t passes() const;
    void evaluate(std::span<const uint8_t> image, size_t sample, std::span<const char* const> metrics,
                  double* values) const;

   private:
    const PmSamplingCalls* calls_ = nullptr;
    CUpti_Profiler_Host_Object* object_ = nullptr;
  };

  /// Throws DeviceError with the call, its status, and what can be done where that is known.
  void check(CUptiResult status, const char* function) const;

 private:
  CuptiHold hold_;
  MINFER_CUPTI_FUNCTION(get_result_string_, cuptiGetResultString);
  MINFER_CUPTI_FUNCTION(get_timestamp_, cuptiGetTimestamp);
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
