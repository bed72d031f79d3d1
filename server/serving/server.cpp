#include "server/serving/server.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/clock.h"
#include "server/api/fields/json_fields.h"
#include "server/api/request/dialect.h"
#include "server/api/request/request_fields.h"
#include "server/http/piece_sender.h"
#include "server/openapi/openapi_document.h"
#include "server/page/page.h"

namespace minfer {
namespace {

constexpr std::chrono::milliseconds kShutdownPoll{10};

}  // namespace

Server::Server(EventLoop& loop, Engine& engine, ServerLog& log, ServerOptions options)
    : Server(loop, ModelSet{.models = {{.engine = {std::shared_ptr<void>(), &engine}}}}, log,
             std::move(options)) {}

Server::Server(EventLoop& loop, ModelSet models, ServerLog& log, ServerOptions options)
    : loop_(loop),
      log_(log),
      options_(std::move(options)),
      ignored_fields_(log_),
      parts_{.loop = loop_,
             .log = log_,
             .options = options_,
             .ignored_fields = ignored_fields_,
             .responses = responses_,
             .registry = std::make_shared<prometheus::Registry>(),
             .on_failure = [this](const std::string& reason) { on_failure(reason); }},
      pool_(std::move(models), parts_),
      metrics_(pool_.is_single() ? pool_.first_name() : "", parts_.registry),
      api_(AccessRules(options_.access, true)) {
  http_ = std::make_unique<HttpServer>(
      loop_,
      HttpServerOptions{.host = options_.host,
                        .port = options_.port,
                        .limits = options_.limits,
                        .error_body =
                            [](int status, const std::string& message) {
                              return error_json({status, message});
                            },
                        .refusal = [this](const HttpRequest& request) { return api_.refusal(request); },
                        .is_vital = [](const HttpRequest& request) { return request.path == "/health"; },
                        .on_finished = [this](const HttpRequest& request,
                                              const HttpOutcome& outcome) { log_access(request, outcome); }},
      [this](std::shared_ptr<HttpExchange> exchange) { api_.handle(exchange); });
  api_ = Api(AccessRules(options_.access, http_->is_loopback()));
  if (!http_->is_loopback() && options_.access.api_keys.empty()) {
    log_.write(LogLevel::warning, "everybody who can reach this address may use the server: see --api-key",
               {{"host", options_.host}});
  }
  pool_.start();
  add_routes();
}

Server::~Server() {
  loop_.end_background_work();
  http_.reset();
}

std::string Server::url() const {
  const bool is_ipv6 = options_.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", is_ipv6 ? "[" : "", options_.host, is_ipv6 ? "]" : "", port());
}

bool Server::run() {
  loop_.run();
  engine_hangs_ = !pool_.stop(failed_ ? options_.closing_timeout : options_.last_step_timeout);
  if (engine_hangs_)
    log_.write(LogLevel::error, "a step of the engine, or the load of a model, does not end");
  return !failed_ && !engine_hangs_;
}

void Server::shut_down() {
  loop_.post([this] { begin_shutdown(); });
}

void Server::add_routes() {
  for (const Dialect* dialect : dialects()) {
    api_.add("POST", std::string(dialect->path), [this, dialect](std::shared_ptr<HttpExchange> exchange) {
      complete(*dialect, std::move(exchange));
    });
    for (const Endpoint& endpoint : dialect->others)
      add_endpoint(endpoint, dialect->model_tag);
  }
  ProfileRoutes::add_to(api_, [this](HttpExchange& exchange, bool keeps) -> ProfileRoutes& {
    ServedModel& model = pool_.loaded(exchange.request().query_value("model"));
    if (keeps) exchange.keep(model.hold(false));
    return model.profile();
  });
  add_page_routes(api_);
  api_.add("GET", "/openapi.json",
           [document = openapi_document()](const std::shared_ptr<HttpExchange>& exchange) {
             exchange->respond({.body = document});
           });
  api_.add(
      "GET", "/health",
      [this](const std::shared_ptr<HttpExchange>& exchange) { exchange->respond(health()); }, true);
  // In the background: the grammar cache's work for clients under its lock then delays nobody's tokens.
  api_.add("GET", "/metrics", [this](const std::shared_ptr<HttpExchange>& exchange) {
    loop_.run_in_background([this, exchange, models = pool_.all_loaded(), listed = pool_.list(),
                             num_connections = http_->num_connections()] {
      HttpResponse response{.content_type = "text/plain; version=0.0.4; charset=utf-8"};
      try {
        for (const std::shared_ptr<ServedModel>& model : models)
          model->update_metrics();
        response.body = metrics_.text(num_connections, listed);
      } catch (const std::exception& error) {
        response = error_response("/metrics", failure(error));
      }
      loop_.post([exchange, response] { exchange->respond(response); });
    });
  });
}

/// Only requests to a server with several models are read twice: first for the model's name.
void Server::complete(const Dialect& dialect, std::shared_ptr<HttpExchange> exchange) {
  const auto start = [&dialect, exchange, arrival_ns = now_ns()](ServedModel& model) {
    model.completions().start(dialect, exchange, arrival_ns);
  };
  if (pool_.is_single()) return pool_.use(0, exchange, start);
  const auto find_model = [this, &dialect, exchange, start] {
    loop_.post([this, &dialect, exchange, start, name = named_model(exchange->request().body)] {
      try {
        pool_.use(pool_.find(name, dialect.model_tag), exchange, start);
      } catch (const std::exception& error) {
        answer_error(*exchange, failure(error));
      }
    });
  };
  loop_.run_in_background(find_model, exchange->request().has_large_body());
}

void Server::add_endpoint(const Endpoint& endpoint, std::string_view model_tag) {
  api_.add(std::string(endpoint.method), std::string(endpoint.path),
           [this, &endpoint, model_tag](std::shared_ptr<HttpExchange> exchange) {
             const auto work = [this, &endpoint, model_tag, exchange, listed = pool_.list()] {
               std::function<void()> reply;
               try {
                 const HttpRequest& request = exchange->request();
                 const bool has_body = endpoint.method == "POST";
                 const std::string_view text =
                     has_body ? std::string_view(request.body)
                              : std::string_view(request.path).substr(endpoint.path.size());
                 const auto model_name = [&] {
                   return has_body ? named_model(text) : request.query_value("model");
                 };
                 const auto context =
                     pool_.context(pool_.is_single() ? 0 : pool_.find(model_name(), model_tag), listed);
                 UnknownFields unknown(options_.refuses_unknown_fields);
                 const auto body =
                     std::make_shared<const std::string>(endpoint.answer(text, *context, unknown));
                 reply = [this, exchange, body, names = unknown.names()] {
                   ignored_fields_.tell(*exchange, names);
                   respond(exchange, body);
                 };
               } catch (const std::exception& error) {
                 reply = [exchange, error = failure(error)] { answer_error(*exchange, error); };
               }
               loop_.post([exchange, reply = std::move(reply)] {
                 exchange->drop_body();
                 reply();
               });
             };
             loop_.run_in_background(work, exchange->request().has_large_body());
           });
}

/// Answers with JSON: a long one leaves in pieces, and counts as held until it has left.
void Server::respond(const std::shared_ptr<HttpExchange>& exchange, std::shared_ptr<const std::string> body) {
  constexpr size_t kBytesOfPiece = 64u << 10;
  if (body->size() <= kBytesOfPiece) return exchange->respond({.body = *body});
  if (!exchange->hold(body->size())) return answer_error(*exchange, ApiError(503, kNoRoom));
  exchange->begin_stream({});
  send_in_pieces(loop_, exchange, [body, begin = size_t{0}](std::string& piece) mutable {
    piece.append(*body, begin, kBytesOfPiece);
    begin += kBytesOfPiece;
    return begin < body->size();
  });
}

/// Answers 200 only while requests are taken and every engine makes progress.
HttpResponse Server::health() const {
  bool has_failed = failed_, is_stalled = false;
  for (const std::shared_ptr<ServedModel>& model : pool_.all_loaded()) {
    const EngineStatus status = model->engine_service().status();
    const int64_t stalled_ms = (now_ns() - status.last_progress_ns) / 1'000'000;
    has_failed |= status.failed;
    is_stalled |= status.busy && stalled_ms > options_.stall_timeout.count();
  }
  const char* const state = has_failed       ? "failed"
                            : shutting_down_ ? "shutting down"
                            : is_stalled     ? "stalled"
                                             : "ok";
  const bool healthy = std::string_view(state) == "ok";
  return {.status = healthy ? 200 : 503, .body = fmt::format(R"({{"status":"{}"}})", state)};
}

void Server::log_access(const HttpRequest& request, const HttpOutcome& outcome) {
  metrics_.count_response(outcome.aborted ? 0 : outcome.status);
  if (!options_.access_log) return;
  log_.write(LogLevel::info, "request",
             {{"id", request.id},
              {"client", request.remote},
              {"method", request.method},
              {"path", request.path},
              {"status", int64_t{outcome.status}},
              {"bytes", static_cast<int64_t>(outcome.sent_bytes)},
              {"ms", static_cast<double>(outcome.duration_ns) * 1e-6},
              {"outcome", outcome.aborted ? "aborted" : "complete"}});
}

void Server::begin_shutdown() {
  if (shutting_down_ || failed_) return;
  shutting_down_ = true;
  log_.write(LogLevel::info, "shutdown", {{"live", static_cast<int64_t>(num_live())}});
  const ApiError refusal(503, "the server is shutting down");
  pool_.refuse_all(refusal);
  for (const std::shared_ptr<ServedModel>& model : pool_.all_loaded()) {
    model->completions().refuse_new(refusal);
    model->profile().end_streams();
  }
  http_->end_keep_alive();
  const Clock::time_point deadline = Clock::now() + options_.shutdown_timeout;
  wait(
      deadline, [this] { return num_live() == 0 || failed_; },
      [this, deadline] {
        if (failed_) return;
        if (num_live() > 0)
          fail_all(ApiError(503, "the server is shutting down and the time to finish is over"));
        wait_until_sent(std::max(deadline, Clock::now() + options_.closing_timeout));
      });
}

size_t Server::num_live() const {
  size_t count = 0;
  for (const std::shared_ptr<ServedModel>& model : pool_.all_loaded())
    count += model->completions().num_live();
  return count;
}

void Server::fail_all(const ApiError& error) {
  pool_.refuse_all(error);
  for (const std::shared_ptr<ServedModel>& model : pool_.all_loaded())
    model->completions().fail_all(error);
}

/// Calls `then` once `is_over()`, at the latest at the deadline.
void Server::wait(Clock::time_point deadline, std::function<bool()> is_over, std::function<void()> then) {
  if (is_over() || Clock::now() >= deadline) return then();
  loop_.post_after(kShutdownPoll, [=, this] { wait(deadline, is_over, then); });
}

void Server::wait_until_sent(Clock::time_point deadline) {
  http_->stop_listening();
  const auto is_sent = [this] { return http_->num_answering() == 0 && !http_->is_accepting(); };
  wait(deadline, is_sent, [this] {
    const auto is_closed = [this] { return http_->num_connections() == 0; };
    wait(Clock::now() + options_.closing_timeout, is_closed, [this] {
      http_->close_all();
      loop_.stop();
    });
  });
}

/// The engine cannot go on: every client is told, then the process ends.
void Server::on_failure(const std::string& reason) {
  if (std::exchange(failed_, true)) return;
  log_.write(LogLevel::error, "the engine has failed", {{"reason", reason}});
  fail_all(ApiError(500, "the engine has failed: " + reason));
  for (const std::shared_ptr<ServedModel>& model : pool_.all_loaded())
    model->profile().end_streams();
  http_->end_keep_alive();
  wait_until_sent(Clock::now() + options_.closing_timeout);
}

}  // namespace minfer
