#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/counters.h"
#include "profiling/counters/counter_profile.h"
#include "profiling/counters/rank_counters.h"
#include "profiling/record/record_queue.h"
#include "profiling/record/recorder.h"

namespace minfer {

struct CollectorOptions {
  int64_t interval_ns = 1'000;           ///< of a sample
  std::chrono::milliseconds window{10};  ///< how long a window is open
  std::chrono::milliseconds every{0};    ///< least time from one window's begin to the next one's
  int64_t first_step = 0;                ///< windows open only while steps first_step to last_step run
  int64_t last_step = std::numeric_limits<int64_t>::max();
  int32_t evaluation_threads = 0;  ///< decode a window; 0: a quarter of the cores, four at most
  size_t queue_bytes = 4u << 20;   ///< memory for each rank's records of a window's steps
};

/// Reads hardware counters in windows while an engine runs steps, on a thread of its own, and matches them with
/// the steps' records. A window opens only after a step has ended since the last window, so an idle engine is
/// left alone. Decoding takes some fifty times as long as the window itself. With several ranks, the devices' windows open and close
/// one right after the other, so they cover the same steps. They are decoded one after the other.
///
/// The engine thread and each other rank's thread only copy records of steps during a window into a bounded queue. They
/// neither allocate nor wait. Steps that find the queue full are left out.
class CounterCollector final : public StepSink, public RankStampSink {
 public:
  /// Called from the collector's thread, or from the constructor for an early error. A window
  /// with an error is the last one of its rank.
  using OnWindow = std::function<void(const CounterWindow&)>;

  /// Switches the counters on, while no step runs, and starts the thread. `ranks`: the first rank in front. Their samplers and everything
  /// that `on_window` uses must outlive this.
  CounterCollector(std::span<const RankCounters> ranks, const CollectorOptions& options, OnWindow on_window);
  /// Waits for the window that is open or being decoded, then releases the counters. Do not call consume() or consume_stamps() during or
  /// after it.
  ~CounterCollector() override;
  CounterCollector(const CounterCollector&) = delete;
  CounterCollector& operator=(const CounterCollector&) = delete;

  /// Replaces the options' range of steps in which windows open. Call before the first consume().
  void set_steps(int64_t first_step, int64_t last_step);
  void consume(const StepRecord& record) noexcept override;
  void consume_stamps(int32_t rank, int64_t step, const StepStamps& stamps) noexcept override;
  bool wants_requests() const noexcept override { return false; }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  /// A rank and its device.
  struct RankReader : RankCounters {
    RankReader(const RankCounters& counters, size_t queue_bytes)
        : RankCounters(counters), profile(ops), queue(queue_bytes, ops.size()) {}

    bool is_read = false;  ///< its device's counters are on, and nothing has failed yet
    CounterProfile profile;
    RecordQueue queue;
    std::atomic<int64_t> last_start_ns{0};  ///< of the rank's last ended step
    StepRecord stamped;                     ///< reused by the rank's thread
    // The window's data; only the collector's thread uses these.
    CounterSamples samples;
    std::string error;
    std::vector<StepRecord> records;
  };

  bool prepare();
  void run(const std::stop_token& stop);
  bool wait_for_steps(const std::stop_token& stop);
  void sample(const std::stop_token& stop);
  void take_records(const std::stop_token& stop);
  void add_batches();
  bool give_windows();
  void give_up(RankReader& reader, std::string error);
  bool sleep(const std::stop_token& stop, std::chrono::nanoseconds time);
  bool is_in_window(int64_t start_ns, int64_t end_ns) const;

  CollectorOptions options_;
  const OnWindow on_window_;
  std::vector<std::unique_ptr<RankReader>> readers_;  ///< the first rank's in front
  /// Set by the engine thread: the number of ended steps, and the last step.
  std::atomic<uint64_t> num_ended_{0};
  std::atomic<int64_t> last_step_{-1};
  /// Read by the engine thread: it keeps records of steps that run between these times.
  std::atomic<int64_t> window_begin_ns_{kNever};
  std::atomic<int64_t> window_end_ns_{kNever};
  uint64_t num_seen_ = 0;  ///< num_ended_ when the last window closed
  std::mutex wake_mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  ///< last: everything above outlives it
};

}  // namespace minfer
