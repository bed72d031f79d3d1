#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/api/answer/answer_reader.h"
#include "server/http/event_loop.h"
#include "server/http/http_message.h"
#include "server/serving/completion/completion_job.h"
#include "server/serving/engine/engine_service.h"
#include "server/serving/engine/server_log.h"

namespace minfer {

/// Says which fields of a request were ignored: in a header of each answer, and in the log once
/// for each field, so that a client that always sends it does not fill the log. I/O thread.
class IgnoredFields {
 public:
  /// `log` outlives it.
  explicit IgnoredFields(ServerLog& log) : log_(log) {}

  /// `names`: of UnknownFields. Call it before the answer begins.
  void tell(HttpExchange& exchange, const std::vector<std::string>& names);

 private:
  ServerLog& log_;
  std::set<std::string> logged_;  ///< a bounded number: clients choose the names
};

/// Takes completion requests from HTTP to the engine, and outputs back: parses and tokenises in the background,
/// bounds the queue, finds the job of each output, cancels requests that nobody waits for any more. I/O thread.
class CompletionService {
 public:
  struct Options {
    size_t max_live_choices = 0;  ///< choices in the engine or on their way; further ones get 429
    std::chrono::milliseconds comment_interval{15'000};  ///< quiet time before a stream gets a comment
  };

  /// Everything passed by reference outlives the service.
  CompletionService(TaskRunner& loop, EngineService& engine, const ApiContext& context, Metrics& metrics,
                    IgnoredFields& ignored_fields, ServerLog& log, const Options& options);

  /// `dialect`: of dialects(). `arrival_ns`: when the request's last byte had arrived.
  void start(const Dialect& dialect, std::shared_ptr<HttpExchange> exchange, int64_t arrival_ns);
  /// Called when the engine has outputs to take.
  void on_outputs();
  /// Answers every later request with `error`.
  void refuse_new(const ApiError& error) { refusal_ = error; }
  /// Answers every live and every later request with `error`, and makes the engine drop the live ones.
  void fail_all(const ApiError& error);
  /// The number of choices in the engine and of requests on their way there.
  size_t num_live() const { return live_.size() + num_parsing_; }

 private:
  struct LiveChoice {
    std::shared_ptr<CompletionJob> job;
    int32_t choice = 0;
  };

  /// Called when a body is parsed, or with the reason why it cannot be.
  using Parsed = std::function<void(const std::optional<ApiError>& error)>;

  void find_grammar(const std::shared_ptr<CompletionRequest>& request, const Parsed& go_on);
  void submit(const std::shared_ptr<HttpExchange>& exchange, CompletionRequest request, int64_t arrival_ns);
  void check_room(size_t num_choices) const;
  void keep_streams_open();
  std::string unused_id(const CompletionRequest& request, const std::string& request_id);

  TaskRunner& loop_;
  EngineService& engine_;
  const ApiContext& context_;
  Metrics& metrics_;
  IgnoredFields& ignored_fields_;
  ServerLog& log_;
  const Options options_;
  std::unordered_map<std::string, LiveChoice> live_;  ///< by the engine's id
  size_t num_parsing_ = 0;
  uint64_t num_repeated_ids_ = 0;
  std::optional<ApiError> refusal_;  ///< the answer to every new request, once set
};

}  // namespace minfer
