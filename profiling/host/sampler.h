#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/device_sample.h"
#include "profiling/host/host_sample.h"

namespace minfer {

/// Takes samples at an interval, on a thread of its own, and keeps the last ones.
template <class Sample>
class Sampler {
 public:
  /// `take` returns samples that end now; one thread at a time calls it. If no thread can be started, only sample_now() takes samples.
  Sampler(std::chrono::milliseconds interval, size_t most, std::function<std::vector<Sample>()> take)
      : interval_(interval), most_(most), take_(std::move(take)) {
    try {
      thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    } catch (const std::system_error&) {  // a profile is worth having without
    }
  }
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  /// The samples that ended after `time_ns`, in order. Any thread, as below.
  std::vector<Sample> after(int64_t time_ns) const {
    const std::lock_guard lock(mutex_);
    auto first = samples_.end();
    while (first != samples_.begin() && std::prev(first)->end_ns > time_ns)
      --first;
    return {first, samples_.end()};
  }
  /// Ends the current sample now.
  void sample_now() {
    const std::lock_guard lock(mutex_);
    for (Sample& sample : take_())
      samples_.push_back(std::move(sample));
    while (samples_.size() > most_)
      samples_.pop_front();
  }

 private:
  void run(const std::stop_token& stop) {
    std::mutex sleep;
    for (;;) {
      {
        std::unique_lock lock(sleep);
        wake_.wait_for(lock, stop, interval_, [] { return false; });
      }
      if (stop.stop_requested()) return;
      sample_now();
    }
  }

  const std::chrono::milliseconds interval_;
  const size_t most_;
  mutable std::mutex mutex_;  ///< guards the members below
  const std::function<std::vector<Sample>()> take_;
  std::deque<Sample> samples_;
  std::condition_variable_any wake_;
  std::jthread thread_;  ///< last: everything above outlives it
};

using HostSampler = Sampler<HostSample>;
using DeviceSampler = Sampler<DeviceSample>;

}  // namespace minfer
