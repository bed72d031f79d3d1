#include "kernels/cuda/profiler/range_profiler.h"

#if __has_include(<cupti_range_profiler.h>)

#include <algorithm>
#include <cmath>
#include <exception>
#include <string_view>

#include <cupti_range_profiler.h>
#include <dlfcn.h>

#include "kernels/base/error.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/profiler/pm_sampling_calls.h"

namespace minfer::cuda {
namespace {

constexpr double kPercent = 0.01;
constexpr double kLeastStall = 0.01;
/// More passes than any set of counters takes: a library that asks for more has a wrong count.
constexpr int kMostPasses = 100;

struct RangeMetric {
  const char* name;
  double OpCounters::*value;
  double scale;
};
constexpr RangeMetric kRangeMetrics[] = {
    {"gpu__time_duration.sum", &OpCounters::us, 1e-3},
    {"dram__bytes_read.sum", &OpCounters::read_bytes, 1.0},
    {"dram__bytes_write.sum", &OpCounters::written_bytes, 1.0},
    {"lts__t_sector_hit_rate.pct", &OpCounters::l2_hit, kPercent},
    {"sm__warps_active.avg.pct_of_peak_sustained_active", &OpCounters::occupancy, kPercent},
    {"smsp__issue_active.avg.pct_of_peak_sustained_active", &OpCounters::issue_active, kPercent},
    {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", &OpCounters::tensor_active, kPercent},
    {"l1tex__data_bank_conflicts_pipe_lsu.sum", &OpCounters::bank_conflicts, 1.0},
};
constexpr std::string_view kStallPrefix = "smsp__average_warps_issue_stalled_";
constexpr std::string_view kStallSuffix = "_per_issue_active.ratio";
/// All except `selected`, which is no wait. gmma: for Hopper's asynchronous products.
constexpr const char* kStalls[] = {
    "long_scoreboard",
    "short_scoreboard",
    "math_pipe_throttle",
    "barrier",
    "wait",
    "lg_throttle",
    "mio_throttle",
    "membar",
    "no_instruction",
    "not_selected",
    "sleeping",
    "tex_throttle",
    "dispatch_stall",
    "drain",
    "branch_resolving",
    "imc_miss",
    "misc",
    "gmma",
};

/// The calling thread's context, which the runtime has made. The driver's library is already loaded.
CUcontext current_context() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* get = driver == nullptr
                  ? nullptr
                  : reinterpret_cast<decltype(&cuCtxGetCurrent)>(dlsym(driver, "cuCtxGetCurrent"));
  CUcontext context = nullptr;
  if (get == nullptr || get(&context) != CUDA_SUCCESS || context == nullptr) {
    fail<DeviceError>("counting ops: the thread has no CUDA context");
  }
  return context;
}

template <class Params>
Params of_profiler(CUpti_RangeProfiler_Object* profiler, Params params) {
  params.pRangeProfilerObject = profiler;
  return params;
}

struct RangeCalls : PmSamplingCalls {
  MINFER_CUPTI_FUNCTION(range_enable, cuptiRangeProfilerEnable);
  MINFER_CUPTI_FUNCTION(range_disable, cuptiRangeProfilerDisable);
  MINFER_CUPTI_FUNCTION(range_set_config, cuptiRangeProfilerSetConfig);
  MINFER_CUPTI_FUNCTION(range_start, cuptiRangeProfilerStart);
  MINFER_CUPTI_FUNCTION(range_stop, cuptiRangeProfilerStop);
  MINFER_CUPTI_FUNCTION(push_range, cuptiRangeProfilerPushRange);
  MINFER_CUPTI_FUNCTION(pop_range, cuptiRangeProfilerPopRange);
  MINFER_CUPTI_FUNCTION(range_decode, cuptiRangeProfilerDecodeData);
  MINFER_CUPTI_FUNCTION(range_image_size, cuptiRangeProfilerGetCounterDataSize);
  MINFER_CUPTI_FUNCTION(range_initialize_image, cuptiRangeProfilerCounterDataImageInitialize);
};

class RangeProfiler final : public RangeCounters {
 public:
  explicit RangeProfiler(int device) : device_(device) {}
  ~RangeProfiler() override { close(); }

  std::string measure(const std::function<void()>& pass, OpCounters& out) override {
    try {
      if (!is_open_) open();
      count(pass);
      out = read();
      return {};
    } catch (const std::exception& error) {
      close();
      return error.what();
    }
  }
  void begin_range() override {
    auto params = of_profiler(profiler_, MINFER_CUPTI_PARAMS(RangeProfiler_PushRange));
    params.pRangeName = "op";
    calls_->check(calls_->push_range(&params), "cuptiRangeProfilerPushRange");
  }
  void end_range() override {
    auto params = of_profiler(profiler_, MINFER_CUPTI_PARAMS(RangeProfiler_PopRange));
    calls_->check(calls_->pop_range(&params), "cuptiRangeProfilerPopRange");
  }

 private:
  void open();
  void close() noexcept;
  void choose_metrics(const std::string& chip);
  void count(const std::function<void()>& pass);
  OpCounters read() const;

  const int device_;
  bool is_open_ = false;
  bool initialized_ = false;
  std::unique_ptr<RangeCalls> calls_;
  std::vector<std::string> names_;
  std::vector<const char*> metrics_;  ///< into names_
  PmSamplingCalls::Host host_;
  std::vector<uint8_t> config_;
  std::vector<uint8_t> image_;
  CUpti_RangeProfiler_Object* profiler_ = nullptr;
};

/// Chooses the metrics that the device has; each is tried alone.
void RangeProfiler::choose_metrics(const std::string& chip) {
  std::vector<std::string> wanted;
  for (const RangeMetric& metric : kRangeMetrics)
    wanted.emplace_back(metric.name);
  for (const char* stall : kStalls)
    wanted.push_back(fmt::format("{}{}{}", kStallPrefix, stall, kStallSuffix));
  for (std::string& name : wanted) {
    const std::array<const char*, 1> alone{name.c_str()};
    try {
      PmSamplingCalls::Host(*calls_, CUPTI_PROFILER_TYPE_RANGE_PROFILER, chip, {}, alone).config_image();
      names_.push_back(std::move(name));
    } catch (const DeviceError&) {  // another architecture has other stalls
    }
  }
  if (names_.empty()) fail<DeviceError>("{}: none of the counters of ops can be had", chip);
  for (const std::string& name : names_)
    metrics_.push_back(name.c_str());
}

void RangeProfiler::open() {
  check(cudaSetDevice(device_), "selecting the device");
  calls_ = std::make_unique<RangeCalls>();
  calls_->initialize();
  initialized_ = true;
  const std::string chip = calls_->chip_name(static_cast<size_t>(device_));
  choose_metrics(chip);
  host_ = PmSamplingCalls::Host(*calls_, CUPTI_PROFILER_TYPE_RANGE_PROFILER, chip, {}, metrics_);
  config_ = host_.config_image();
  auto enable = MINFER_CUPTI_PARAMS(RangeProfiler_Enable);
  enable.ctx = current_context();
  calls_->check(calls_->range_enable(&enable), "cuptiRangeProfilerEnable");
  profiler_ = enable.pRangeProfilerObject;
  auto size = of_profiler(profiler_, MINFER_CUPTI_PARAMS(RangeProfiler_GetCounterDataSize));
  size.pMetricNames = metrics_.data();
  size.numMetrics = metrics_.size();
  size.maxNumOfRanges = 1;
  size.maxNumRangeTreeNodes = 1;
  calls_->check(calls_->range_image_size(&size), "cuptiRangeProfilerGetCounterDataSize");
  image_.resize(size.counterDataSize);
  is_open_ = true;
}

void RangeProfiler::close() noexcept {
  if (profiler_ != nullptr) {
    auto params = of_profiler(profiler_, MINFER_CUPTI_PARAMS(RangeProfiler_Disable));
    calls_->range_disable(&params);
  }
  profiler_ = nullptr;
  host_ = {};
  if (initialized_) calls_->deinitialize();
  initialized_ = false;
  calls_.reset();
  metrics_.clear();
  names_.clear();
  is_open_ = false;
}

void RangeProfiler::count(const std::function<void()>& pass) {
  auto clear = of_profiler(profiler_, MINFER_CUPTI_PARAMS(RangeProfiler_CounterDataImage_Initialize));
  clear.counterDataSize = image_.size();
  clear.pCounterData = image_.data();
  calls_->check(calls_->range_initialize_image(&clear), "cuptiRangeProfilerCounterDataImageInitialize");
  auto config = of_profiler(profiler_, MINFER_CUPTI_PARAMS(RangeProfiler_SetConfig));
  config.configSize = config_.size();
  config.pConfig = config_.data();
  config.counterDataImageSize = image_.size();
  config.pCounterDataImage = image_.data();
  config.range = CUPTI_UserRange;
  config.replayMode = CUPTI_UserReplay;
  config.maxRangesPerPass = 1;
  config.numNestingLevels = 1;
  config.minNestingLevel = 1;
  config.passIndex = 0;
  config.targetNestingLevel = 1;
  calls_->check(calls_->range_set_config(&config), "cuptiRangeProfilerSetConfig");
  bool is_last = false;
  for (int i = 0; !is_last; ++i) {
    if (i == kMostPasses) fail<DeviceError>("counting ops: more than {} passes", kMostPasses);
    auto start = of_profiler(profiler_, MINFER_CUPTI_PARAMS(RangeProfiler_Start));
    calls_->check(calls_->range_start(&start), "cuptiRangeProfilerStart");
    pass();
    auto stop = of_profiler(profiler_, MINFER_CUPTI_PARAMS(RangeProfiler_Stop));
    calls_->check(calls_->range_stop(&stop), "cuptiRangeProfilerStop");
    is_last = stop.isAllPassSubmitted != 0;
  }
  auto decode = of_profiler(profiler_, MINFER_CUPTI_PARAMS(RangeProfiler_DecodeData));
  calls_->check(calls_->range_decode(&decode), "cuptiRangeProfilerDecodeData");
}

OpCounters RangeProfiler::read() const {
  std::vector<double> values(metrics_.size());
  host_.evaluate(image_, 0, metrics_, values.data());
  OpCounters counters;
  for (const RangeMetric& metric : kRangeMetrics)
    counters.*metric.value = std::nan("");
  for (size_t i = 0; i < values.size(); ++i) {
    for (const RangeMetric& metric : kRangeMetrics) {
      if (names_[i] == metric.name) counters.*metric.value = values[i] * metric.scale;
    }
    if (!names_[i].starts_with(kStallPrefix) || !(values[i] >= kLeastStall)) continue;
    const size_t length = names_[i].size() - kStallPrefix.size() - kStallSuffix.size();
    counters.stalls.emplace_back(names_[i].substr(kStallPrefix.size(), length), values[i]);
  }
  std::ranges::stable_sort(counters.stalls, std::ranges::greater{}, &std::pair<std::string, double>::second);
  return counters;
}

}  // namespace

std::unique_ptr<RangeCounters> make_range_profiler(int device) {
  return std::make_unique<RangeProfiler>(device);
}

}  // namespace minfer::cuda

#else

namespace minfer::cuda {

std::unique_ptr<RangeCounters> make_range_profiler(int /*device*/) {
  return nullptr;
}

}  // namespace minfer::cuda

#endif
