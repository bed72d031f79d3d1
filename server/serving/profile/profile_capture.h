#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "profiling/counters/counter_collector.h"
#include "profiling/json/profile_writer.h"
#include "server/api/fields/api_error.h"
#include "server/http/event_loop.h"
#include "server/http/http_message.h"
#include "server/serving/engine/engine_service.h"
#include "server/serving/engine/server_log.h"

namespace minfer {

struct ProfileRequest;

/// Writes the records of the steps between POST /start_profile and POST /stop_profile to a file, or of
/// the number of steps that the former names, kernel by kernel where the backend can trace. I/O thread.
///
/// Other threads open, write and close files; the engine's thread only attaches the writer and
/// detaches it, between two steps. Records hold the ids of requests only while a file is written.
class ProfileCapture {
 public:
  /// Files go to `folder`. `header`: of detail `op`. Everything passed by reference outlives
  /// this. `counters_are_read`: somebody else reads counters as long as the program runs.
  ProfileCapture(TaskRunner& loop, Engine& engine, EngineService& engine_service, ServerLog& log,
                 ProfileHeader header, std::filesystem::path folder, bool counters_are_read);
  /// Closes a file that is still being written. Only after the loop's background and the engine's thread have ended.
  ~ProfileCapture();
  ProfileCapture(const ProfileCapture&) = delete;
  ProfileCapture& operator=(const ProfileCapture&) = delete;

  /// Answers {"file","detail","first_step"} once steps are being recorded. The body may be empty; for
  /// its contents see server/README.md. 400 if start_step has passed, 409 while a profile is
  /// being taken, or if it asks for counters that somebody else reads, 500 if the file cannot be made.
  void start(const std::shared_ptr<HttpExchange>& exchange);
  /// Answers {"file","steps","dropped"} once the file is whole. "dropped_lines": lines other than
  /// steps' were lost. With kernels: "kernels", or "kernels_error" if they could not be traced. With
  /// counters: "counter_windows", and "counters_error" if some rank has none. The body is ignored. 409
  /// without a start, also when num_steps have been recorded; 500 if some steps could not be written.
  void stop(const std::shared_ptr<HttpExchange>& exchange);

 private:
  enum class State : uint8_t { idle, changing, running };

  std::shared_ptr<ProfileWriter> open_file(const ProfileRequest& request, std::filesystem::path& path);
  void open_counters(const std::shared_ptr<ProfileWriter>& writer);
  void detach(CounterCollector& collector);
  void attach(const std::shared_ptr<HttpExchange>& exchange, std::shared_ptr<ProfileWriter> writer,
              std::filesystem::path path, const ProfileRequest& request);
  void give_up(const std::shared_ptr<HttpExchange>& exchange, const ApiError& error);
  void on_end();
  void finish(const ProfileWriter::Stats& stats);
  void log_end(const std::string& file, const ProfileWriter::Stats& stats);

  TaskRunner& loop_;
  Engine& engine_;
  EngineService& engine_service_;
  ServerLog& log_;
  const ProfileHeader header_;
  const std::filesystem::path folder_;
  const bool counters_are_read_;
  State state_ = State::idle;
  std::shared_ptr<ProfileWriter> writer_;  ///< from attach() to finish()
  std::filesystem::path path_;             ///< of its file
  RangeLine range_;                        ///< the traced range; the writer's thread sets it
  bool has_range_ = false;                 ///< the writer's thread has set range_
  int64_t counter_windows_ = 0;            ///< windows of collector_; its thread sets this and the next
  std::string counters_error_;
  bool has_counters_ = false;               ///< counters were asked for
  std::shared_ptr<HttpExchange> stopping_;  ///< waits for the file to be whole
  bool is_leaving_ = false;                 ///< the destructor runs
  /// From start() to finish(), if counters are asked for. Last: it uses the others.
  std::unique_ptr<CounterCollector> collector_;
};

}  // namespace minfer
