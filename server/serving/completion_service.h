#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/http/event_loop.h"
#include "server/serving/completion_job.h"
#include "server/serving/engine_service.h"

namespace minfer {

/// Takes completion requests from HTTP to the engine and outputs back: parses and tokenises in the
/// background, bounds the queue, finds the job of each output, cancels what nobody waits for any more. I/O
/// thread.
class CompletionService {
 public:
  /// At most `max_live_choices` are in the engine, running and queued, or on their way there; further
  /// requests are answered with 429. Everything passed by reference outlives the service.
  CompletionService(EventLoop& loop, EngineService& engine, const ApiContext& context, Metrics& metrics,
                    size_t max_live_choices);

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

  void on_parsed(const std::shared_ptr<HttpExchange>& exchange, Parsed& parsed, int64_t arrival_ns);
  void submit(const std::shared_ptr<HttpExchange>& exchange, CompletionRequest request, int64_t arrival_ns);
  void check_room(size_t num_choices) const;
  std::string unused_id(const CompletionRequest& request, const std::string& request_id);

  EventLoop& loop_;
  EngineService& engine_;
  const ApiContext& context_;
  Metrics& metrics_;
  const size_t max_live_choices_;
  std::unordered_map<std::string, LiveChoice> live_;  ///< by the engine's id
  size_t num_parsing_ = 0;
  uint64_t num_repeated_ids_ = 0;
  std::optional<ApiError> refusal_;  ///< the answer to every new request, once set
};

}  // namespace minfer
