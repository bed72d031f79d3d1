#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "models/grammar/grammar_cache.h"
#include "profiling/counters/latest_counters.h"
#include "server/api/request/api_context.h"
#include "server/dialects/responses/response_store.h"
#include "server/http/event_loop.h"
#include "server/http/http_server.h"
#include "server/kv_events/kv_event_publisher.h"
#include "server/routes/router.h"
#include "server/serving/completion/chat_renderer.h"
#include "server/serving/completion/completion_service.h"
#include "server/serving/engine/engine_service.h"
#include "server/serving/engine/metrics.h"
#include "server/serving/engine/server_log.h"
#include "server/serving/profile/profile_routes.h"

namespace minfer {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  ///< 0: any that is free
  HttpLimits limits = {};
  AccessOptions access = {};
  std::vector<std::string> served_model_names = {};  ///< empty: the model's own; "*": and any other
  bool refuses_unknown_fields = false;               ///< in requests; else they are ignored
  std::string chat_template = {};                    ///< a file; empty: the model's own
  AnswerFormatOptions answer_format = {};
  int32_t max_queue_size = 2048;         ///< choices that may wait for a slot; beyond that: 429
  int64_t max_answer_bytes = 128 << 20;  ///< of JSON, as a request's fields let one expect
  /// A stream that has no event for this long gets a comment line, so that proxies keep it.
  std::chrono::milliseconds comment_interval{15'000};
  std::chrono::milliseconds shutdown_timeout{30'000};
  /// How long the last answers have to leave after the time of their requests is over, and then the last connections to close.
  std::chrono::milliseconds closing_timeout{1'000};
  std::chrono::milliseconds last_step_timeout{5'000};  ///< how long the engine's last step has to end
  std::chrono::milliseconds stall_timeout{120'000};    ///< without progress /health is not 200
  bool access_log = true;
  std::string profile_dir = ".";                ///< where /start_profile writes
  const LatestCounters* counters = nullptr;     ///< for /profile/summary; null: nothing. Outlives the server
  const KvEventPublisher* kv_events = nullptr;  ///< for /metrics; null: nothing. Outlives the server
};

/// The OpenAI-compatible server over one engine. Threads: one that calls
/// run(), for all I/O; one for the engine; two for parsing; one for the log.
class Server {
 public:
  /// Listens from here on; answers from run() on. Everything passed by reference outlives the
  /// server, and nobody else uses the engine. Throws Error if it cannot have the address.
  Server(EventLoop& loop, Engine& engine, ServerLog& log, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Serves until shut_down() has taken effect or the engine fails. Returns false if the engine failed or does not end.
  bool run();
  /// After run(): true if a step goes on and on, so that the server, which waits for it, cannot be destroyed.
  bool engine_hangs() const { return engine_hangs_; }
  /// New requests get 503; running ones may finish until the shutdown timeout, then they are cancelled. From any thread, also before run().
  void shut_down();

  uint16_t port() const { return http_->port(); }
  std::string url() const;
  /// The model as clients name it; with several names, the first.
  const std::string& model_name() const { return context_.served_model_names.front(); }
  /// The server's routes.
  const Api& api() const { return api_; }

 private:
  void add_routes();
  void add_endpoint(const Endpoint& endpoint);
  void respond(const std::shared_ptr<HttpExchange>& exchange, std::shared_ptr<const std::string> body);
  HttpResponse health() const;
  void log_access(const HttpRequest& request, const HttpOutcome& outcome);
  void begin_shutdown();
  using Clock = std::chrono::steady_clock;
  void wait(Clock::time_point deadline, std::function<bool()> is_over, std::function<void()> then);
  void wait_until_sent(Clock::time_point deadline);
  void on_failure(const std::string& reason);

  EventLoop& loop_;
  Engine& engine_;
  ServerLog& log_;
  const ServerOptions options_;
  Metrics metrics_;
  RecentRecords recent_;
  ResponseStore responses_{ResponseStore::Limits{}};
  std::unique_ptr<GrammarCache> grammars_;  ///< null: the device draws tokens without masks
  ApiContext context_;
  IgnoredFields ignored_fields_;
  std::unique_ptr<EngineService> engine_service_;
  std::unique_ptr<CompletionService> completions_;
  std::unique_ptr<ProfileRoutes> profile_;
  Api api_;
  std::unique_ptr<HttpServer> http_;
  bool shutting_down_ = false;
  bool failed_ = false;
  bool engine_hangs_ = false;
};

}  // namespace minfer
