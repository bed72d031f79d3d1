#include "kernels/cuda/profiler/pm_sampler.h"

#if __has_include(<cupti_pmsampling.h>)

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>

#include "kernels/base/error.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/current_device.h"
#include "kernels/cuda/profiler/device_timer.h"
#include "kernels/cuda/profiler/pm_sampling_calls.h"

namespace minfer::cuda {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 20;
constexpr int kMostDecodes = 64;  // for a window, whose image holds all of it
/// Sampling continues for a while after it is stopped.
constexpr int64_t kStopNs = 4'000'000;

/// The driver's name of a counter. The hardware reads the counters of the Triage sets in one pass. If a device
/// lacks a name, the next name of the same counter is tried.
struct MetricName {
  Counter counter;
  const char* name;
  double scale;  ///< from the metric's unit to the counter's
};
constexpr double kPercent = 0.01;
constexpr MetricName kMetricNames[] = {
    {Counter::dram_read_bytes, "dram__bytes_read.sum", 1.0},
    {Counter::dram_written_bytes, "dram__bytes_write.sum", 1.0},
    {Counter::sm_active, "TPC.TriageCompute.sm__cycles_active.avg.pct_of_peak_sustained_elapsed", kPercent},
    {Counter::sm_active, "sm__cycles_active.avg.pct_of_peak_sustained_elapsed", kPercent},
    {Counter::tensor_active,
     "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed", kPercent},
    {Counter::tensor_active, "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
     kPercent},
    {Counter::warps_active, "TPC.TriageCompute.tpc__warps_active_realtime.avg.pct_of_peak_sustained_elapsed",
     kPercent},
    {Counter::warps_active, "tpc__warps_active_realtime.avg.pct_of_peak_sustained_elapsed", kPercent},
    {Counter::l2_throughput, "LTS.TriageCompute.lts__t_sector_throughput.avg.pct_of_peak_sustained_elapsed",
     kPercent},
    {Counter::l2_throughput, "lts__t_sectors.avg.pct_of_peak_sustained_elapsed", kPercent},
    {Counter::l2_hit, "LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.pct", kPercent},
    {Counter::nvlink_received_bytes, "nvlrx__bytes.sum", 1.0},
    {Counter::nvlink_sent_bytes, "nvltx__bytes.sum", 1.0},
};

/// Processor time of the calling thread.
double thread_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// `action`'s error text; empty: none.
std::string error_of(const std::function<void()>& action) {
  try {
    action();
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// Samples that would fill the gaps. Lengths of samples differ by the 32 ns of the grid that they lie on.
int64_t missing_between(const CounterSamples& samples) {
  int64_t missing = 0;
  for (size_t i = 1; i < samples.size(); ++i) {
    const int64_t length_ns = std::max<int64_t>(samples.end_ns[i] - samples.begin_ns[i], 1);
    missing += (samples.begin_ns[i] - samples.end_ns[i - 1] + length_ns / 2) / length_ns;
  }
  return missing;
}

/// One instant on both clocks, exact to the time that the question took.
struct Instant {
  int64_t device_ns = 0;
  int64_t library_ns = 0;
};

class PmSampler final : public CounterSampler {
 public:
  explicit PmSampler(int device) : device_(device) {}
  ~PmSampler() override { close(); }

  std::string prepare(const CounterOptions& options) override {
    const std::string error = error_of([&] { open(options); });
    if (!error.empty()) close();
    return error;
  }
  const CounterSetup& setup() const override { return setup_; }
  std::string begin_window() override {
    return error_of([&] { begin(); });
  }
  std::string end_window() override {
    return error_of([&] { end(); });
  }
  std::string drain(CounterSamples& out) override {
    return error_of([&] { read(out); });
  }
  void close() noexcept override;

 private:
  void open(const CounterOptions& options);
  void choose_metrics(const std::string& chip, std::span<const uint8_t> availability);
  void enable();
  void begin();
  void end();
  void read(CounterSamples& out);
  Instant now();
  bool decode(CounterSamples& out);
  void evaluate(size_t first, size_t num_samples, CounterSamples& out) const;
  void put_on_device_clock(CounterSamples& out) const;

  const int device_;
  CounterOptions options_;
  CounterSetup setup_;
  std::unique_ptr<PmSamplingCalls> calls_;  ///< null: closed
  bool initialized_ = false;
  std::vector<const char*> metrics_;  ///< by column
  std::vector<double> scales_;
  std::vector<uint8_t> config_;
  std::vector<PmSamplingCalls::Host> evaluators_;  ///< one a thread
  CUpti_PmSampling_Object* sampling_ = nullptr;
  std::vector<uint8_t> image_;
  std::unique_ptr<DeviceTimer> timer_;
  Instant before_;  ///< before the window
  Instant after_;
  double start_ms_ = 0.0;
  double stop_ms_ = 0.0;
};

void PmSampler::open(const CounterOptions& options) {
  close();
  if (options.interval_ns < 500 || options.window_ns < options.interval_ns ||
      options.evaluation_threads < 1) {
    fail(
        "sampling of counters: an interval of {} ns, a window of {} ns and {} threads, expected at least 500 "
        "ns, one interval and one thread",
        options.interval_ns, options.window_ns, options.evaluation_threads);
  }
  options_ = options;
  const CurrentDevice current(device_);
  check(current.error(), "selecting the device");
  calls_ = std::make_unique<PmSamplingCalls>();
  calls_->initialize();
  initialized_ = true;
  timer_ = std::make_unique<DeviceTimer>();
  now();  // the first launch of its kernel takes long
  const auto device = static_cast<size_t>(device_);
  const std::string chip = calls_->chip_name(device);
  const std::vector<uint8_t> availability = calls_->counter_availability(device);
  choose_metrics(chip, availability);
  for (int i = 0; i < options.evaluation_threads; ++i)
    evaluators_.emplace_back(*calls_, CUPTI_PROFILER_TYPE_PM_SAMPLING, chip, availability, metrics_);
  config_ = evaluators_.front().config_image();
  enable();
  image_ = calls_->make_image(sampling_, metrics_,
                              static_cast<uint32_t>((options.window_ns + kStopNs) / options.interval_ns));
}

/// Takes each metric that the device has and that still fits into one pass with those before it: a metric that
/// it lacks would make a whole list fail.
void PmSampler::choose_metrics(const std::string& chip, std::span<const uint8_t> availability) {
  setup_ = {.interval_ns = options_.interval_ns, .counters = {}, .left_out = {}};
  for (const Counter counter : kAllCounters) {
    std::string reason;
    bool taken = false;
    for (const MetricName& metric : kMetricNames) {
      if (metric.counter != counter || taken) continue;
      metrics_.push_back(metric.name);
      const std::string error = error_of([&] {
        const size_t passes =
            PmSamplingCalls::Host(*calls_, CUPTI_PROFILER_TYPE_PM_SAMPLING, chip, availability, metrics_)
                .passes();
        if (passes != 1) fail("takes {} passes with the others", passes);
      });
      taken = error.empty();
      if (taken) {
        scales_.push_back(metric.scale);
        setup_.counters.push_back(counter);
      } else {
        metrics_.pop_back();
        reason += fmt::format("{}{}: {}", reason.empty() ? "" : "; ", metric.name, error);
      }
    }
    if (!taken) setup_.left_out.emplace_back(counter, reason);
  }
  if (metrics_.empty()) {
    fail<DeviceError>("{}: none of the counters can be sampled: {}", chip, setup_.left_out.front().second);
  }
}

void PmSampler::enable() {
  sampling_ = calls_->enable(static_cast<size_t>(device_));
  calls_->set_config(sampling_, config_, options_.interval_ns, kBufferBytes);
}

void PmSampler::close() noexcept {
  if (calls_ == nullptr) return;
  const CurrentDevice current(device_);  // if this fails, the device's resources are gone anyway
  if (sampling_ != nullptr) calls_->disable(sampling_);
  sampling_ = nullptr;
  evaluators_.clear();
  if (initialized_) calls_->deinitialize();
  initialized_ = false;
  timer_.reset();
  calls_.reset();
  metrics_.clear();
  scales_.clear();
  image_ = {};
}

/// The clocks' readings around the shortest of some questions to the device.
Instant PmSampler::now() {
  constexpr int kQuestions = 3;
  Instant best;
  uint64_t shortest_ns = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < kQuestions; ++i) {
    const uint64_t asked_ns = calls_->timestamp_ns();
    const int64_t device_ns = timer_->now_ns();
    const uint64_t took_ns = calls_->timestamp_ns() - asked_ns;
    if (took_ns >= shortest_ns) continue;
    shortest_ns = took_ns;
    best = {device_ns, static_cast<int64_t>(asked_ns + took_ns / 2)};
  }
  return best;
}

void PmSampler::begin() {
  if (calls_ == nullptr) fail("sampling of counters is not prepared");
  const CurrentDevice current(device_);
  check(current.error(), "selecting the device");
  if (sampling_ == nullptr) {
    enable();
    calls_->clear_image(sampling_, image_);
  }
  before_ = now();
  const auto begin = std::chrono::steady_clock::now();
  calls_->start(sampling_);
  start_ms_ = ms_since(begin);
}

void PmSampler::end() {
  if (sampling_ == nullptr) fail("no window of counters has begun");
  const CurrentDevice current(device_);
  check(current.error(), "selecting the device");
  const auto begin = std::chrono::steady_clock::now();
  calls_->stop(sampling_);
  stop_ms_ = ms_since(begin);
  after_ = now();
}

void PmSampler::read(CounterSamples& out) {
  if (sampling_ == nullptr) fail("no window of counters has ended");
  const CurrentDevice current(device_);
  check(current.error(), "selecting the device");
  const double begin_ms = thread_ms();
  out.counters = setup_.counters;
  out.begin_ns.clear();
  out.end_ns.clear();
  out.values.clear();
  out.start_ms = start_ms_;
  out.stop_ms = stop_ms_;
  out.drain_ms = 0.0;
  out.clock = SampleClock::device;
  out.lost = (after_.device_ns - before_.device_ns) / options_.interval_ns;
  const bool is_whole = decode(out);
  if (out.size() > 0) {
    put_on_device_clock(out);
    out.lost = missing_between(out);
    if (!is_whole) out.lost += (after_.device_ns - out.end_ns.back()) / options_.interval_ns;
  }
  out.drain_ms += thread_ms() - begin_ms;
}

/// Empties the hardware's buffer, one image at a time. False: the end of the window, or all of it, is lost.
bool PmSampler::decode(CounterSamples& out) {
  bool is_whole = true;
  for (int pass = 0; pass < kMostDecodes; ++pass) {
    const PmSamplingCalls::Decoded decoded = calls_->decode(sampling_, image_);
    if (decoded.overflowed) {
      calls_->disable(sampling_);  // only this makes it sample again
      sampling_ = nullptr;
      return false;
    }
    // A window's first sample begins where an earlier one began.
    evaluate(pass == 0 ? 1 : 0, decoded.samples, out);
    calls_->clear_image(sampling_, image_);
    is_whole = is_whole && !decoded.image_full;
    if (decoded.is_last || decoded.samples == 0) return is_whole;
  }
  return false;
}

/// Adds the samples of the image from `first` on to `out`, without empty ones.
void PmSampler::evaluate(size_t first, size_t num_samples, CounterSamples& out) const {
  if (num_samples <= first) return;
  const size_t count = num_samples - first;
  const size_t columns = metrics_.size();
  std::vector<PmSamplingCalls::Times> times(count);
  std::vector<double> values(count * columns);
  std::vector<std::string> errors(count);
  std::mutex mutex;  // guards out.drain_ms
  const auto evaluate_part = [&](size_t part) {
    const CurrentDevice current(device_);  // a new thread starts on device 0
    const double begin_ms = thread_ms();
    for (size_t i = part; i < count; i += evaluators_.size()) {
      errors[i] = error_of([&] {
        times[i] = calls_->sample_times(sampling_, image_, first + i);
        evaluators_[part].evaluate(image_, first + i, metrics_, values.data() + i * columns);
      });
    }
    if (part == 0) return;
    const std::lock_guard lock(mutex);
    out.drain_ms += thread_ms() - begin_ms;
  };
  {
    std::vector<std::jthread> threads;
    for (size_t part = 1; part < evaluators_.size(); ++part)
      threads.emplace_back(evaluate_part, part);
    evaluate_part(0);
  }
  size_t good = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!errors[i].empty() || times[i].begin_ns == 0 || times[i].begin_ns >= times[i].end_ns) continue;
    ++good;
    out.begin_ns.push_back(static_cast<int64_t>(times[i].begin_ns));
    out.end_ns.push_back(static_cast<int64_t>(times[i].end_ns));
    for (size_t column = 0; column < columns; ++column)
      out.values.push_back(values[i * columns + column] * scales_[column]);
  }
  if (good == 0 && !errors[0].empty()) fail<DeviceError>("{}", errors[0]);
}

/// Puts samples on the device's clock. They lie between the questions before and after their window: on the device's
/// clock if the library used it, otherwise on the library's own, which drifts against it by microseconds a second.
void PmSampler::put_on_device_clock(CounterSamples& out) const {
  const int64_t first_ns = out.begin_ns.front();
  const int64_t last_ns = out.end_ns.back();
  if (first_ns >= before_.device_ns && last_ns <= after_.device_ns) return;
  if (first_ns < before_.library_ns || last_ns > after_.library_ns) {
    fail<DeviceError>(
        "sampling of counters: samples from {} to {} ns lie on no known clock: the device's window is {} to "
        "{}, "
        "the library's {} to {}",
        first_ns, last_ns, before_.device_ns, after_.device_ns, before_.library_ns, after_.library_ns);
  }
  out.clock = SampleClock::fitted;
  const double rate = static_cast<double>(after_.device_ns - before_.device_ns) /
                      static_cast<double>(after_.library_ns - before_.library_ns);
  const auto on_device = [&](int64_t library_ns) {
    return before_.device_ns + std::llround(static_cast<double>(library_ns - before_.library_ns) * rate);
  };
  std::ranges::transform(out.begin_ns, out.begin_ns.begin(), on_device);
  std::ranges::transform(out.end_ns, out.end_ns.begin(), on_device);
}

}  // namespace

std::unique_ptr<CounterSampler> make_pm_sampler(int device) {
  // Makes samples carry the device's own clock. CUPTI reads the variable at its first call of any kind. No
  // manual documents it, so every window's times are checked.
  setenv("CUPTI_ENABLE_SAMPLING_GPU_TIMESTAMP", "1", 0);
  return std::make_unique<PmSampler>(device);
}

}  // namespace minfer::cuda

#else

namespace minfer::cuda {
namespace {

class NoPmSampler final : public CounterSampler {
 public:
  std::string prepare(const CounterOptions& /*options*/) override { return kReason; }
  const CounterSetup& setup() const override { return setup_; }
  std::string begin_window() override { return kReason; }
  std::string end_window() override { return kReason; }
  std::string drain(CounterSamples& /*out*/) override { return kReason; }
  void close() noexcept override {}

 private:
  static constexpr const char* kReason =
      "this build has no hardware counters: CUPTI's headers (cupti_pmsampling.h, CUDA toolkit 12.6 or later) "
      "were "
      "not there when it was made";
  CounterSetup setup_;
};

}  // namespace

std::unique_ptr<CounterSampler> make_pm_sampler(int /*device*/) {
  return std::make_unique<NoPmSampler>();
}

}  // namespace minfer::cuda

#endif
