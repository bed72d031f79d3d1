#include "server/serving/server.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "kernels/comm/process_group.h"
#include "server/api/fields/json_fields.h"
#include "server/api/request/dialect.h"
#include "server/http/piece_sender.h"
#include "server/openapi/openapi_document.h"
#include "server/page/page.h"
#include "server/routes/router.h"
#include "server/serving/completion/chat_renderer.h"
#include "server/serving/profile/profile_session.h"

namespace minfer {
namespace {

constexpr std::chrono::milliseconds kShutdownPoll{10};

/// The model's name as clients give it: a file's without folder and suffix.
std::string served_name(const ModelSource& model) {
  std::string name = model.name();
  if (name == "the embedded demo model") return "minfer-demo";
  if (name.starts_with(kSyntheticPrefix)) return name;
  name.erase(0, name.rfind('/') + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

/// The served name that stands for all names.
constexpr std::string_view kAnyName = "*";

std::vector<std::string> served_names(const ServerOptions& options, const ModelSource& model) {
  std::vector<std::string> names = options.served_model_names;
  std::erase(names, kAnyName);
  return names.empty() ? std::vector{served_name(model)} : names;
}

ModelFacts facts_of(const ModelSource& model) {
  ModelFacts facts;
  facts.architecture = model.config().architecture.name;
  std::map<DType, int64_t> parameters;
  for (const HostTensor& tensor : model.tensors()) {
    const int64_t count = tensor.count * tensor.rows * tensor.cols;
    parameters[tensor.dtype] += count;
    facts.num_parameters += count;
    facts.bytes += static_cast<int64_t>(tensor.bytes());
  }
  const auto most = std::ranges::max_element(parameters, {}, [](const auto& entry) { return entry.second; });
  if (most != parameters.end()) facts.dtype = name(most->first);
  return facts;
}

ApiContext make_context(const Engine& engine, const ServerOptions& options, ServerLog& log) {
  ApiContext context;
  context.tokenizer = &engine.tokenizer();
  context.render_chat = make_chat_renderer(options.chat_template, engine, log);
  set_answer_format(context, options.answer_format, chat_template_text(options.chat_template, engine), log);
  context.vocab_size = engine.config().vocab_size;
  context.max_model_len = engine.options().max_model_len;
  for (TokenId id = 0; id < context.tokenizer->vocab_size(); ++id) {
    context.longest_token_bytes =
        std::max(context.longest_token_bytes, context.tokenizer->piece(id, true).size());
  }
  context.served_model_names = served_names(options, engine.model());
  context.any_model_name =
      std::ranges::find(options.served_model_names, kAnyName) != options.served_model_names.end();
  context.refuses_unknown_fields = options.refuses_unknown_fields;
  context.model = facts_of(engine.model());
  context.created = static_cast<int64_t>(std::time(nullptr));
  context.system_fingerprint = fmt::format("minfer-{}", MINFER_VERSION);
  context.stream_interval = engine.options().stream_interval;
  context.limits.max_answer_bytes = options.max_answer_bytes;
  context.limits.max_history_bytes = options.limits.body_bytes;
  context.schedules_by_priority = engine.options().policy == SchedulingPolicy::priority;
  return context;
}

/// Null: the device draws tokens without masks.
std::unique_ptr<GrammarCache> make_grammar_cache(Engine& engine) {
  if (!engine.backend_info().takes_masks) return nullptr;
  return std::make_unique<GrammarCache>(
      [&engine] { return std::make_shared<const TokenTrie>(engine.tokenizer(), engine.config().vocab_size); },
      GrammarCache::Options{});
}

}  // namespace

Server::Server(EventLoop& loop, Engine& engine, ServerLog& log, ServerOptions options)
    : loop_(loop),
      engine_(engine),
      log_(log),
      options_(std::move(options)),
      metrics_(served_names(options_, engine.model()).front(), engine.options()),
      grammars_(make_grammar_cache(engine)),
      context_(make_context(engine, options_, log_)),
      ignored_fields_(log_),
      api_(AccessRules(options_.access, true)) {
  context_.responses = &responses_;
  context_.grammars = grammars_.get();
  // First of all: where the machine's ceilings are not known yet, they are measured now, while nothing else runs.
  ProfileHeader profile_header = make_profile_header(engine_, ProfileDetail::op);
  engine_.host_sampler();
  engine_.recorder().add_sink(metrics_);
  engine_.recorder().add_sink(recent_);
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
  engine_service_ = std::make_unique<EngineService>(
      engine_,
      EngineService::Callbacks{
          .on_outputs = [this] { loop_.post([this] { completions_->on_outputs(); }); },
          .on_failure =
              [this](const std::string& reason) { loop_.post([this, reason] { on_failure(reason); }); }});
  completions_ = std::make_unique<CompletionService>(
      loop_, *engine_service_, context_, metrics_, ignored_fields_, log_,
      CompletionService::Options{.max_live_choices = static_cast<size_t>(engine_.options().max_num_seqs) +
                                                     static_cast<size_t>(options_.max_queue_size),
                                 .comment_interval = options_.comment_interval});
  profile_ = std::make_unique<ProfileRoutes>(
      ProfileSources{loop_, engine_, *engine_service_, metrics_, log_, options_.counters, recent_,
                     context_.served_model_names.front()},
      std::move(profile_header), options_.profile_dir);
  add_routes();
  if (ProcessGroup* processes = engine_.options().processes.get()) {
    processes->when_failed([this](const std::string& why) { loop_.post([this, why] { on_failure(why); }); });
  }
}

Server::~Server() {
  if (ProcessGroup* processes = engine_.options().processes.get()) processes->when_failed(nullptr);
  loop_.end_background_work();
  http_.reset();
  engine_service_.reset();
  profile_.reset();
  engine_.recorder().remove_sink(metrics_);
  engine_.recorder().remove_sink(recent_);
}

std::string Server::url() const {
  const bool is_ipv6 = options_.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", is_ipv6 ? "[" : "", options_.host, is_ipv6 ? "]" : "", port());
}

bool Server::run() {
  loop_.run();
  engine_hangs_ = !engine_service_->stop(failed_ ? options_.closing_timeout : options_.last_step_timeout);
  if (engine_hangs_) log_.write(LogLevel::error, "a step of the engine does not end");
  return !failed_ && !engine_hangs_;
}

void Server::shut_down() {
  loop_.post([this] { begin_shutdown(); });
}

void Server::add_routes() {
  for (const Dialect* dialect : dialects()) {
    api_.add("POST", std::string(dialect->path), [this, dialect](std::shared_ptr<HttpExchange> exchange) {
      completions_->start(*dialect, std::move(exchange));
    });
    for (const Endpoint& endpoint : dialect->others)
      add_endpoint(endpoint);
  }
  profile_->add_to(api_);
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
    loop_.run_in_background([this, exchange, num_connections = http_->num_connections()] {
      HttpResponse response{.content_type = "text/plain; version=0.0.4; charset=utf-8"};
      try {
        const EngineStatus status =
            engine_service_->status();  // before the counts: those of an idle engine are its last
        std::optional<GrammarCache::Counts> grammars;
        if (grammars_) grammars = grammars_->counts();
        std::optional<KvEventCounts> kv_events;
        if (options_.kv_events != nullptr) kv_events = options_.kv_events->counts();
        response.body = metrics_.text(status, num_connections, kv_events ? &*kv_events : nullptr,
                                      grammars ? &*grammars : nullptr);
      } catch (const std::exception& error) {
        response = error_response("/metrics", failure(error));
      }
      loop_.post([exchange, response] { exchange->respond(response); });
    });
  });
}

void Server::add_endpoint(const Endpoint& endpoint) {
  api_.add(std::string(endpoint.method), std::string(endpoint.path),
           [this, &endpoint](std::shared_ptr<HttpExchange> exchange) {
             const auto work = [this, &endpoint, exchange] {
               std::function<void()> reply;
               try {
                 const HttpRequest& request = exchange->request();
                 const std::string_view text =
                     endpoint.method == "POST" ? std::string_view(request.body)
                                               : std::string_view(request.path).substr(endpoint.path.size());
                 UnknownFields unknown(context_.refuses_unknown_fields);
                 const auto body =
                     std::make_shared<const std::string>(endpoint.answer(text, context_, unknown));
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

/// Answers 200 only while requests are taken and the engine makes progress.
HttpResponse Server::health() const {
  const EngineStatus status = engine_service_->status();
  const int64_t stalled_ms = (now_ns() - status.last_progress_ns) / 1'000'000;
  const char* state = "ok";
  if (failed_ || status.failed) {
    state = "failed";
  } else if (shutting_down_) {
    state = "shutting down";
  } else if (status.busy && stalled_ms > options_.stall_timeout.count()) {
    state = "stalled";
  }
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
  log_.write(LogLevel::info, "shutdown", {{"live", static_cast<int64_t>(completions_->num_live())}});
  completions_->refuse_new(ApiError(503, "the server is shutting down"));
  profile_->end_streams();
  http_->end_keep_alive();
  const Clock::time_point deadline = Clock::now() + options_.shutdown_timeout;
  wait(
      deadline, [this] { return completions_->num_live() == 0 || failed_; },
      [this, deadline] {
        if (failed_) return;
        if (completions_->num_live() > 0)
          completions_->fail_all(ApiError(503, "the server is shutting down and the time to finish is over"));
        wait_until_sent(std::max(deadline, Clock::now() + options_.closing_timeout));
      });
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
  completions_->fail_all(ApiError(500, "the engine has failed: " + reason));
  profile_->end_streams();
  http_->end_keep_alive();
  wait_until_sent(Clock::now() + options_.closing_timeout);
}

}  // namespace minfer
