#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "profiling/host/sampler.h"
#include "profiling/record/profile_header.h"
#include "profiling/record/record_queue.h"
#include "profiling/record/recorder.h"
#include "profiling/summary/summary.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// Owns a file, pipe or device opened for writing. Another thread can end a write(), however slow the other end is.
class OutputFile {
 public:
  /// Creates or empties the file. Throws FileError if it cannot be opened.
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Writes all of `bytes`; returns the reason for a failure. After a stop request it waits for a slow reader
  /// for at most `timeout`. The calling thread must block SIGPIPE, or a closed pipe ends the process.
  std::optional<std::string> write(std::string_view bytes, const std::stop_token& stop,
                                   std::chrono::milliseconds timeout);

 private:
  std::string path_;
  int fd_;
};

struct WriterOptions {
  int64_t first_step = 0;  ///< only steps first_step to last_step, both included, reach the file
  int64_t last_step = std::numeric_limits<int64_t>::max();
  size_t queue_bytes = 4u << 20;   ///< memory for records that wait to be written
  size_t queued_requests = 4'096;  ///< most ended requests that wait to be written
  HostSampler* host = nullptr;     ///< its samples that end after the file's begin are written. Outlives this
  DeviceSampler* devices = nullptr;                ///< likewise
  std::chrono::milliseconds close_timeout{5'000};  ///< longest wait of close() for a stalled reader
  /// Called at most once, from the writer's thread.
  std::function<void(const std::string&)> on_error = nullptr;
  /// Called from the writer's thread when a range from add_range() is computed and on its way to the file.
  std::function<void(const RangeLine&)> on_range = nullptr;
};

/// Writes each step as a line of JSON (profile schema minfer.step/2), on a thread of its own.
///
/// The engine thread calls consume(), which only copies the record into a bounded queue: it neither allocates, nor waits, nor wakes
/// another thread. Steps that find the queue full, or come after the file failed (disk full, pipe closed), are dropped and counted. Every
/// line has the count so far. No failure of the file reaches the engine.
class ProfileWriter final : public StepSink {
 public:
  /// Creates or empties the file. Throws FileError if it cannot be opened.
  ProfileWriter(const std::filesystem::path& path, ProfileHeader header, WriterOptions options = {});
  ~ProfileWriter() override;
  ProfileWriter(const ProfileWriter&) = delete;
  ProfileWriter& operator=(const ProfileWriter&) = delete;

  /// Replaces the options' range of steps that reach the file. Call before the first consume().
  void set_steps(int64_t first_step, int64_t last_step);
  void consume(const StepRecord& record) noexcept override;
  /// The same for an ended request (schema minfer.request/1): its line follows the lines of the steps that were consumed before.
  /// Requests without a step in the file are left out. While the client takes the answer the line is held back, at the latest until
  /// close(), and then has the values known by that time.
  void consume_request(const EndedRequest& request) noexcept override;
  /// The same for the times of a step on another rank (schema minfer.rank/1).
  void consume_rank_step(const RankStep& step) noexcept override;
  /// Writes a traced range behind the steps that were consumed before. The writer's thread computes it. Do not call
  /// during or after close().
  void add_range(RangeTrace range);
  /// Writes a whole line of another schema, including the newline, between the lines of steps and behind ranges added before. The line is
  /// dropped if the file takes no lines and a thousand wait. Call before close().
  void add_line(std::string line);

  /// A write that failed midway counts as one that wrote nothing, although a few of its lines may be in the file.
  struct Stats {
    uint64_t written = 0;        ///< steps whose line is in the file
    uint64_t dropped = 0;        ///< steps of the range without a line
    uint64_t dropped_lines = 0;  ///< lines of all other kinds
    bool beat_ceilings = false;  ///< StepSummariser::beats_ceilings()
    std::string error;           ///< why the file failed; empty: no failure
  };
  /// Writes the queued lines and ends the thread. Do not call consume() during or after it. A second call returns the same result.
  Stats close();

 private:
  /// The ranges and lines that add_range() and add_line() brought.
  struct Added {
    std::vector<RangeTrace> ranges;
    std::vector<std::string> lines;
  };

  void run(const std::stop_token& stop);
  void drain();
  void write_last();
  void write(RangeTrace range);
  /// Appends the lines of launches that steps may name from now on.
  void append_new_launches();
  /// Appends a line that is not a step's.
  template <class Value>
  void append(const Value& value);
  /// Must be called after each line that is not a step's.
  void end_other_line();
  void flush();
  void write_requests();
  void write_samples();
  /// Writes the requests whose clients have finished; with `all`, also the others, with the values known so far.
  void write_waiting_requests(bool all);
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
  std::stop_token stop_;                       ///< of the writer's thread
  std::deque<EndedRequest> waiting_requests_;  ///< ended requests whose clients still take the answer
  StepSummariser summariser_;
  std::string buffer_;  ///< lines not yet in the file
  uint64_t buffered_steps_ = 0;
  int64_t host_until_ns_;  ///< samples up to here are written, or came before the file
  int64_t devices_until_ns_ = host_until_ns_;
  uint64_t buffered_lines_ = 0;  ///< of other kinds
  int32_t launches_written_ = 0;
  uint64_t written_ = 0;          ///< set by the writer thread; close() reads it after the thread's end
  uint64_t unwritten_ = 0;        ///< steps lost because the file failed
  uint64_t unwritten_lines_ = 0;  ///< lines of other kinds lost in the same way
  std::string error_;
  std::atomic<uint64_t> overflowed_{0};        ///< steps lost because the queue was full
  std::atomic<uint64_t> overflowed_lines_{0};  ///< of ended requests and of ranks
  std::mutex added_mutex_;
  Added added_;                 ///< not yet in the buffer
  uint64_t refused_lines_ = 0;  ///< by add_line()
  std::mutex wake_mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  ///< last: everything above outlives it
};

}  // namespace minfer
