#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "kernels/counters.h"
#include "kernels/op.h"
#include "profiling/counters/counter_profile.h"
#include "profiling/record/record_queue.h"
#include "profiling/record/recorder.h"

namespace minfer {

struct CollectorOptions {
  int64_t interval_ns = 1'000;           ///< of a sample
  std::chrono::milliseconds window{10};  ///< how long a window is open
  std::chrono::milliseconds every{0};    ///< from one window's begin to the next one's at the least
  int64_t first_step = 0;                ///< windows open while steps first_step to last_step run
  int64_t last_step = std::numeric_limits<int64_t>::max();
  int32_t evaluation_threads =
      0;  ///< that decode a window; 0: as many as a quarter of the cores, four at most
  size_t queue_bytes = 4u << 20;  ///< memory for records of a window's steps
};

/// Reads hardware counters window by window while an engine runs steps, on a thread of its own, and lays them
/// over the steps' records. A window opens when a step has ended since the last one, so that an idle engine is
/// left alone; decoding it takes some fifty times as long as the window itself.
///
/// The engine's thread only copies the records of steps that run during a window into a bounded queue: it
/// neither allocates nor waits. Steps that find the queue full are left out.
class CounterCollector final : public StepSink {
 public:
  /// Called from the collector's thread, from the constructor for an error in the beginning. After a window
  /// with an error there is no other.
  using OnWindow = std::function<void(const CounterWindow&)>;

  /// Switches the counters on, with no step under way, and starts the thread. `sampler` null: the backend has
  /// none. The sampler and what `on_window` uses outlive this.
  CounterCollector(CounterSampler* sampler, std::span<const OpInfo> ops, const CollectorOptions& options,
                   OnWindow on_window);
  /// Ends after the window that is open or being decoded, and gives the counters back. No consume() during or after it.
  ~CounterCollector() override;
  CounterCollector(const CounterCollector&) = delete;
  CounterCollector& operator=(const CounterCollector&) = delete;

  /// During which steps windows open, instead of what the options say. Before the first consume().
  void set_steps(int64_t first_step, int64_t last_step);
  void consume(const StepRecord& record) noexcept override;
  bool wants_requests() const noexcept override { return false; }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  void run(const std::stop_token& stop);
  bool wait_for_steps(const std::stop_token& stop);
  std::string sample(const std::stop_token& stop, CounterSamples& samples);
  std::vector<StepRecord> take_records(const std::stop_token& stop);
  bool sleep(const std::stop_token& stop, std::chrono::nanoseconds time);

  CounterSampler* const sampler_;
  CollectorOptions options_;
  const OnWindow on_window_;
  CounterProfile profile_;
  RecordQueue queue_;
  /// What the engine's thread says: how many steps have ended, the last one's number and begin.
  std::atomic<uint64_t> num_ended_{0};
  std::atomic<int64_t> last_step_{-1};
  std::atomic<int64_t> last_start_ns_{0};
  /// What it is told: records of steps that run between these are wanted.
  std::atomic<int64_t> window_begin_ns_{kNever};
  std::atomic<int64_t> window_end_ns_{kNever};
  uint64_t num_seen_ = 0;  ///< of num_ended_, when the last window closed
  std::mutex wake_mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  ///< last: everything above outlives it
};

}  // namespace minfer
