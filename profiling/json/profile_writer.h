#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "profiling/host/sampler.h"
#include "profiling/json/output_file.h"
#include "profiling/json/profile_header.h"
#include "profiling/record/record_queue.h"
#include "profiling/record/recorder.h"
#include "profiling/report/summary.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

struct WriterOptions {
  int64_t first_step = 0;  ///< only steps first_step to last_step, both included, reach the file
  int64_t last_step = std::numeric_limits<int64_t>::max();
  size_t queue_bytes = 4u << 20;   ///< memory for records that wait to be written
  size_t queued_requests = 4'096;  ///< that have ended and wait to be written, at the most
  HostSampler* host = nullptr;  ///< whose samples that end after its begin reach the file too. Outlives this
  DeviceSampler* devices = nullptr;                ///< likewise
  std::chrono::milliseconds close_timeout{5'000};  ///< how long close() waits for a reader that does not read
  /// Called at most once, from the writer's thread.
  std::function<void(const std::string&)> on_error = nullptr;
  /// A range that add_range() brought is computed and on its way to the file. From the writer's thread.
  std::function<void(const RangeLine&)> on_range = nullptr;
};

/// Writes each step it is given as a line of JSON (profile schema minfer.step/2) from a thread of its own.
///
/// consume() is called from the engine thread and only copies the record into a bounded queue: it neither allocates, nor waits, nor wakes
/// anybody. Steps that find the queue full, or come after the file failed (disk full, pipe closed), are dropped and counted; every line
/// carries the count so far. Nothing that happens to the file reaches the engine.
class ProfileWriter final : public StepSink {
 public:
  /// Creates or empties the file. Throws FileError if it cannot be opened.
  ProfileWriter(const std::filesystem::path& path, ProfileHeader header, WriterOptions options = {});
  ~ProfileWriter() override;
  ProfileWriter(const ProfileWriter&) = delete;
  ProfileWriter& operator=(const ProfileWriter&) = delete;

  /// Which steps reach the file, instead of what the options say. Before the first consume().
  void set_steps(int64_t first_step, int64_t last_step);
  void consume(const StepRecord& record) noexcept override;
  /// The same for a request that has ended (schema minfer.request/1): its line follows those of the steps that were consumed before.
  /// Those of which no step reaches the file are left out. While its client takes the answer the line is held back, until close() at the
  /// latest, and has what is known then.
  void consume_request(const EndedRequest& request) noexcept override;
  /// Likewise what a step took on another rank (schema minfer.rank/1).
  void consume_rank_step(const RankStep& step) noexcept override;
  /// Writes what was traced of a range, behind the steps that were consumed before. It is computed on the writer's thread. Not
  /// during or after close().
  void add_range(RangeTrace range);
  /// Puts a whole line of another schema, newline included, between those of steps, behind ranges that were added before; while the
  /// file takes none and a thousand wait it is dropped. Before close().
  void add_line(std::string line);

  /// A write that failed in its middle counts as one that wrote nothing: a few lines of it may be there.
  struct Stats {
    uint64_t written = 0;        ///< steps whose line is in the file
    uint64_t dropped = 0;        ///< steps of the range that are not
    uint64_t dropped_lines = 0;  ///< of all other kinds
    bool beat_ceilings = false;  ///< StepSummariser::beats_ceilings()
    std::string error;           ///< why the file failed; empty: it did not
  };
  /// Writes what is queued and ends the thread. No consume() during or after it. A second call only returns the same again.
  Stats close();

 private:
  void run(const std::stop_token& stop);
  void drain(const std::stop_token& stop);
  void write_last(const std::stop_token& stop);
  void write(RangeTrace range, const std::stop_token& stop);
  /// The lines of launches that steps may name from now on.
  void append_new_launches(const std::stop_token& stop);
  /// Has to follow each line that is not a step's.
  void end_other_line(const std::stop_token& stop);
  void flush(const std::stop_token& stop);
  void write_requests(const std::stop_token& stop);
  void write_samples(const std::stop_token& stop);
  /// Those that wait for their clients no more, or, with `all`, whatever is known of them.
  void write_waiting_requests(bool all, const std::stop_token& stop);
  bool in_range(const RequestSteps& steps) const {
    return steps.last < 0 || (steps.last >= options_.first_step && steps.first <= options_.last_step);
  }
  bool in_range(int64_t step) const { return step >= options_.first_step && step <= options_.last_step; }

  WriterOptions options_;
  ProfileHeader header_;
  OutputFile file_;
  RecordQueue queue_;
  BoundedQueue<EndedRequest> requests_;
  BoundedQueue<RankStep> rank_steps_;
  std::deque<EndedRequest> waiting_requests_;  ///< ended, whose clients take the answer
  StepSummariser summariser_;
  std::string buffer_;  ///< lines not yet in the file
  uint64_t buffered_steps_ = 0;
  int64_t host_until_ns_;  ///< samples up to here are written, or came before the file
  int64_t devices_until_ns_ = host_until_ns_;
  uint64_t buffered_lines_ = 0;  ///< of other kinds
  int32_t launches_written_ = 0;
  uint64_t written_ = 0;          ///< writer thread; read by close() once that has ended
  uint64_t unwritten_ = 0;        ///< steps lost because the file failed
  uint64_t unwritten_lines_ = 0;  ///< lines of other kinds lost so
  std::string error_;
  std::atomic<uint64_t> overflowed_{0};        ///< steps lost because the queue was full
  std::atomic<uint64_t> overflowed_lines_{0};  ///< of ended requests and of ranks
  std::mutex ranges_mutex_;
  std::vector<RangeTrace> ranges_;  ///< not yet written
  std::mutex lines_mutex_;
  std::vector<std::string> lines_;  ///< of add_line(), not yet in the buffer
  uint64_t refused_lines_ = 0;      ///< by add_line()
  std::mutex wake_mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  ///< last: everything above outlives it
};

}  // namespace minfer
