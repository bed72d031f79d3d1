#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/answer/id_source.h"
#include "server/http/event_loop.h"
#include "server/serving/completion/completion_job.h"
#include "server/serving/completion/ignored_fields.h"
#include "server/serving/engine_service.h"
#include "server/serving/server_log.h"

namespace minfer {

/// Takes completion requests from HTTP to the engine and outputs back: parses and tokenises in the
/// background, bounds the queue, finds the job of each output, cancels what nobody waits for any more. I/O
/// thread.
class CompletionService {
 public:
  struct Options {
    size_t max_live_choices =
        0;  ///< in the engine, or on their way there; further ones are answered with 429
    std::chrono::milliseconds comment_interval{15'000};  ///< of a stream that has no event for so long
  };

  /// Everything passed by reference outlives the service.
  CompletionService(EventLoop& loop, EngineService& engine, const ApiContext& context, Metrics& metrics,
                    IgnoredFields& ignored_fields, ServerLog& log, const Options& options);

  void start(Endpoint endpoint, std::shared_ptr<HttpExchange> exchange);
  /// The engine has outputs to take.
  void on_outputs();
  /// Answers every later request with `error`.
  void refuse_new(const ApiError& error) { refusal_ = error; }
  /// Answers every live and every later request with `error`, and has the engine drop them.
  void fail_all(const ApiError& error);
  /// Choices in the engine, and requests on their way there.
  size_t num_live() const { return live_.size() + num_parsing_; }

 private:
  struct LiveChoice {
    std::shared_ptr<CompletionJob> job;
    int32_t choice = 0;
  };

  struct Parsed;

  void find_grammar(const std::shared_ptr<Parsed>& parsed, const std::function<void()>& go_on);
  void on_parsed(const std::shared_ptr<HttpExchange>& exchange, Parsed& parsed, int64_t arrival_ns);
  void submit(const std::shared_ptr<HttpExchange>& exchange, CompletionRequest request, int64_t arrival_ns);
  void check_room(size_t num_choices) const;
  void keep_streams_open();
  std::string unused_id(const CompletionRequest& request, const std::string& request_id);

  EventLoop& loop_;
  EngineService& engine_;
  const ApiContext& context_;
  Metrics& metrics_;
  IgnoredFields& ignored_fields_;
  ServerLog& log_;
  const Options options_;
  std::unordered_map<std::string, LiveChoice> live_;  ///< by the engine's id
  size_t num_parsing_ = 0;
  uint64_t num_repeated_ids_ = 0;
  IdSource ids_;
  std::optional<ApiError> refusal_;  ///< the answer to every new request, once set
};

}  // namespace minfer
