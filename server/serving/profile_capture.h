#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "profiling/json/profile_writer.h"
#include "server/http/event_loop.h"
#include "server/http/http_message.h"
#include "server/openai/api_error.h"
#include "server/serving/engine_service.h"
#include "server/serving/server_log.h"

namespace minfer {

/// Writes the records of the steps between POST /start_profile and POST /stop_profile to a file. I/O thread.
///
/// Files are opened, written and closed on other threads; the engine's only takes the writer on and lets go
/// of it, between two steps. Only while a file is written do records hold the ids of requests.
class ProfileCapture {
 public:
  /// Files go to `folder`. `header` is that of detail `op`. Everything passed by reference outlives this.
  ProfileCapture(EventLoop& loop, Engine& engine, EngineService& engine_service, ServerLog& log,
                 ProfileHeader header, std::filesystem::path folder);
  /// Closes a file that is still being written. Only when neither the loop's background nor the engine's
  /// thread runs any more.
  ~ProfileCapture();
  ProfileCapture(const ProfileCapture&) = delete;
  ProfileCapture& operator=(const ProfileCapture&) = delete;

  /// Answers {"file","detail"} once steps are being recorded. The body may be empty or
  /// {"detail":"op"|"layer"}; what else is in it, see read_detail(). 409 while a profile is being taken, 500
  /// if the file cannot be made.
  void start(const std::shared_ptr<HttpExchange>& exchange);
  /// Answers {"file","steps","dropped"} once the file is whole. The body is not looked at. 409 without a
  /// start, 500 if some steps could not be written.
  void stop(const std::shared_ptr<HttpExchange>& exchange);

 private:
  enum class State : uint8_t { idle, changing, running };

  void attach(const std::shared_ptr<HttpExchange>& exchange, std::shared_ptr<ProfileWriter> writer,
              std::filesystem::path path, ProfileDetail detail);
  void close(const std::shared_ptr<HttpExchange>& exchange);
  void finish(HttpExchange& exchange, const ProfileWriter::Stats& stats);

  EventLoop& loop_;
  Engine& engine_;
  EngineService& engine_service_;
  ServerLog& log_;
  const ProfileHeader header_;
  const std::filesystem::path folder_;
  State state_ = State::idle;
  std::shared_ptr<ProfileWriter> writer_;  ///< from attach() to finish()
  std::filesystem::path path_;             ///< of its file
};

/// The detail that a body of POST /start_profile asks for. Load tools send fields of their own along, which
/// are passed over (vLLM's sends a whole completion request), unless they would change what is recorded
/// (SGLang's num_steps, output_dir and others): those are a 400, as is anything that is no JSON object.
ProfileDetail read_detail(std::string_view body);

/// Creates an empty file in `folder` under a name that none there has, "minfer-DATE-TIME-PROCESS.jsonl" with
/// a number behind it if need be. Throws FileError.
std::filesystem::path create_profile_file(const std::filesystem::path& folder);

}  // namespace minfer
