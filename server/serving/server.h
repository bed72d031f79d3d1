#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "server/dialects/responses/response_store.h"
#include "server/http/event_loop.h"
#include "server/http/http_server.h"
#include "server/routes/router.h"
#include "server/serving/completion/completion_service.h"
#include "server/serving/engine/metrics.h"
#include "server/serving/engine/server_log.h"
#include "server/serving/model_pool.h"
#include "server/serving/server_options.h"

namespace minfer {

/// The OpenAI-compatible server over one model or several. Threads: one that calls run(), for all I/O; one for
/// each loaded model's engine; two for parsing; one for the log; one that loads and unloads models.
class Server {
 public:
  /// Listens from here on; answers from run() on. Everything passed by reference outlives the
  /// server, and nobody else uses the engine. Throws Error if it cannot have the address.
  Server(EventLoop& loop, Engine& engine, ServerLog& log, ServerOptions options);
  /// The same for several models, or one.
  Server(EventLoop& loop, ModelSet models, ServerLog& log, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Serves until shut_down() has taken effect or the engine fails. Returns false if the engine failed or does not end.
  bool run();
  /// After run(): true if a step or a load goes on and on, so that the server, which waits for it, cannot be destroyed.
  bool engine_hangs() const { return engine_hangs_; }
  /// New requests get 503; running ones may finish until the shutdown timeout, then they are cancelled. From any thread, also before run().
  void shut_down();

  uint16_t port() const { return http_->port(); }
  std::string url() const;
  /// The model as clients name it; with several names, the first.
  const std::string& model_name() const { return pool_.first_name(); }
  /// The server's routes.
  const Api& api() const { return api_; }

 private:
  void add_routes();
  void add_endpoint(const Endpoint& endpoint, std::string_view model_tag);
  void complete(const Dialect& dialect, std::shared_ptr<HttpExchange> exchange);
  void respond(const std::shared_ptr<HttpExchange>& exchange, std::shared_ptr<const std::string> body);
  HttpResponse health() const;
  void log_access(const HttpRequest& request, const HttpOutcome& outcome);
  void begin_shutdown();
  size_t num_live() const;
  void fail_all(const ApiError& error);
  using Clock = std::chrono::steady_clock;
  void wait(Clock::time_point deadline, std::function<bool()> is_over, std::function<void()> then);
  void wait_until_sent(Clock::time_point deadline);
  void on_failure(const std::string& reason);

  EventLoop& loop_;
  ServerLog& log_;
  const ServerOptions options_;
  ResponseStore responses_{ResponseStore::Limits{}};
  IgnoredFields ignored_fields_;
  const ServerParts parts_;
  ModelPool pool_;
  HttpMetrics metrics_;
  Api api_;
  std::unique_ptr<HttpServer> http_;
  bool shutting_down_ = false;
  bool failed_ = false;
  bool engine_hangs_ = false;
};

}  // namespace minfer
