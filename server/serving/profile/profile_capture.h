#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "profiling/json/profile_writer.h"
#include "server/api/fields/api_error.h"
#include "server/http/http_message.h"
#include "server/serving/profile/profile_session.h"
#include "server/serving/profile/profile_summary.h"

namespace minfer {

struct ProfileRequest;

/// Writes the records of the steps between POST /start_profile and POST /stop_profile to a file, or of
/// the number of steps that the former names, kernel by kernel where the backend can trace. I/O thread.
///
/// Other threads open, write and close files; the engine's thread only attaches the writer and
/// detaches it, between two steps. Records hold the ids of requests only while a file is written.
class ProfileCapture {
 public:
  /// Files go to `folder`. `header`: of detail `op`. If `sources` has counters, somebody else reads them as long as the program runs.
  ProfileCapture(ProfileSources sources, ProfileHeader header, std::filesystem::path folder)
      : sources_(std::move(sources)), header_(std::move(header)), folder_(std::move(folder)) {}
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

  void open_file(const ProfileRequest& request);
  void attach(const std::shared_ptr<HttpExchange>& exchange, const ProfileRequest& request, Engine& engine);
  void give_up(const std::shared_ptr<HttpExchange>& exchange, const ApiError& error);
  void close_file();
  void finish(const ProfileWriter::Stats& stats);
  void log_end(const ProfileWriter::Stats& stats);

  const ProfileSources sources_;
  const ProfileHeader header_;
  const std::filesystem::path folder_;
  State state_ = State::idle;
  /// From start() to finish(). While `changing`, the thread at work on the profile has it and the path, else the I/O thread.
  std::shared_ptr<ProfileRecording> recording_;
  std::filesystem::path path_;              ///< of its file
  std::shared_ptr<HttpExchange> stopping_;  ///< waits for the file to be whole
  bool is_leaving_ = false;                 ///< the destructor runs
};

}  // namespace minfer
