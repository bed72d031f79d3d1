#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "profiling/host/host_counters.h"

namespace minfer {

/// Looks four times a second, on a thread of its own, at what the machine does to this process. Keeps the last samples.
class HostSampler {
 public:
  static constexpr std::chrono::milliseconds kInterval{250};
  static constexpr size_t kMost = 4'096;  ///< samples: the last seventeen minutes

  /// `engine_thread` gives the id of the engine's thread, 0 while there is none; from any thread. Where no thread can be started
  /// there are samples only of sample_now().
  explicit HostSampler(std::function<int32_t()> engine_thread);
  HostSampler(const HostSampler&) = delete;
  HostSampler& operator=(const HostSampler&) = delete;

  /// Those that ended after `time_ns`, in their order. Any thread, as below.
  std::vector<HostSample> after(int64_t time_ns) const;
  /// Ends the sample that is under way.
  void sample_now();

 private:
  void run(const std::stop_token& stop);

  const std::function<int32_t()> engine_thread_;
  const int32_t cores_;
  mutable std::mutex mutex_;  ///< guards what follows
  HostReader reader_;
  HostCounters last_;
  std::deque<HostSample> samples_;
  std::condition_variable_any wake_;
  std::jthread thread_;  ///< last: everything above outlives it
};

}  // namespace minfer
