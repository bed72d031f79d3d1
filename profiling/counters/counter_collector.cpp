#include "profiling/counters/counter_collector.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "kernels/stamps.h"

namespace minfer {
namespace {

constexpr std::chrono::milliseconds kWakeInterval{1};
/// How long a window waits for the record of a step that began in it: no longer than steps take.
constexpr std::chrono::milliseconds kLastStep{2'000};

/// The engine runs beside the threads that decode.
int32_t quarter_of_the_cores() {
  return std::clamp(static_cast<int32_t>(std::thread::hardware_concurrency() / 4), 1, 4);
}

CounterWindow failed_window(std::string error) {
  CounterWindow window;
  window.error = std::move(error);
  return window;
}

}  // namespace

CounterCollector::CounterCollector(CounterSampler* sampler, std::span<const OpInfo> ops,
                                   const CollectorOptions& options, OnWindow on_window)
    : sampler_(sampler),
      options_(options),
      on_window_(std::move(on_window)),
      profile_(ops),
      queue_(options.queue_bytes, ops.size()) {
  if (sampler_ == nullptr) {
    on_window_(failed_window("hardware counters: this backend has none: they are of NVIDIA GPUs"));
    return;
  }
  const int64_t window_ns = std::chrono::nanoseconds(options_.window).count();
  const std::string error =
      sampler_->prepare({.interval_ns = options_.interval_ns,
                         .window_ns = window_ns + window_ns / 4,
                         .evaluation_threads = options_.evaluation_threads > 0 ? options_.evaluation_threads
                                                                               : quarter_of_the_cores()});
  if (!error.empty()) {
    on_window_(failed_window("hardware counters: " + error));
    return;
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

CounterCollector::~CounterCollector() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  if (sampler_ != nullptr) sampler_->close();
}

void CounterCollector::set_steps(int64_t first_step, int64_t last_step) {
  options_.first_step = first_step;  // the collector's thread looks at them when a step has ended
  options_.last_step = last_step;
}

void CounterCollector::consume(const StepRecord& record) noexcept {
  if (record.end_ns >= window_begin_ns_.load(std::memory_order_relaxed) &&
      record.start_ns <= window_end_ns_.load(std::memory_order_relaxed)) {
    try {
      queue_.push(record);
    } catch (const std::exception&) {  // no memory for more stamps than ever before: the step is left out
    }
  }
  last_step_.store(record.step, std::memory_order_relaxed);
  last_start_ns_.store(record.start_ns, std::memory_order_relaxed);
  num_ended_.fetch_add(1, std::memory_order_release);
}

/// False: there is no time left.
bool CounterCollector::sleep(const std::stop_token& stop, std::chrono::nanoseconds time) {
  std::unique_lock lock(wake_mutex_);
  wake_.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

/// Until a step of the range has ended since the last window, and another of the range may be running.
bool CounterCollector::wait_for_steps(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const uint64_t num_ended = num_ended_.load(std::memory_order_acquire);
    const int64_t next_step = last_step_.load(std::memory_order_relaxed) + 1;
    if (num_ended != num_seen_ && next_step > options_.last_step) return false;
    if (num_ended != num_seen_ && next_step >= options_.first_step) return true;
    sleep(stop, kWakeInterval);
  }
  return false;
}

/// A window, from begin to end.
std::string CounterCollector::sample(const std::stop_token& stop, CounterSamples& samples) {
  window_end_ns_.store(kNever, std::memory_order_relaxed);
  const int64_t asked_ns = now_ns();
  window_begin_ns_.store(asked_ns, std::memory_order_relaxed);
  std::string error = sampler_->begin_window();
  if (!error.empty()) return error;
  sleep(stop, options_.window);
  error = sampler_->end_window();
  window_end_ns_.store(now_ns(), std::memory_order_relaxed);
  if (error.empty()) error = sampler_->drain(samples);
  samples.asked_ns = asked_ns;
  return error;
}

/// Records of the window's steps, once the engine has gone on to a step behind it, or has none.
std::vector<StepRecord> CounterCollector::take_records(const std::stop_token& stop) {
  const int64_t end_ns = window_end_ns_.load(std::memory_order_relaxed);
  const auto deadline = std::chrono::steady_clock::now() + kLastStep;
  std::vector<StepRecord> records;
  for (;;) {
    // Asked before the queue is emptied: what was pushed before it is taken.
    const uint64_t num_ended = num_ended_.load(std::memory_order_acquire);
    const bool is_whole = last_start_ns_.load(std::memory_order_relaxed) > end_ns ||
                          std::chrono::steady_clock::now() > deadline || stop.stop_requested();
    while (const StepRecord* record = queue_.front()) {
      records.push_back(*record);
      queue_.pop();
    }
    num_seen_ = num_ended;
    if (is_whole) break;
    sleep(stop, kWakeInterval);
  }
  window_begin_ns_.store(kNever, std::memory_order_relaxed);
  return records;
}

void CounterCollector::run(const std::stop_token& stop) {
  while (wait_for_steps(stop)) {
    const auto begin = std::chrono::steady_clock::now();
    CounterSamples samples;
    const std::string error = sample(stop, samples);
    const std::vector<StepRecord> records = take_records(stop);
    if (!error.empty()) return on_window_(failed_window("hardware counters: " + error));
    on_window_(profile_.add(std::move(samples), records, sampler_->setup()));
    if (!sleep(stop, std::max<std::chrono::nanoseconds>(
                         options_.every - (std::chrono::steady_clock::now() - begin), {}))) {
      return;
    }
  }
}

}  // namespace minfer
