#include "server/serving/completion/completion_service.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/clock.h"
#include "server/api/request/structured_output.h"
#include "server/routes/router.h"

namespace minfer {
namespace {

constexpr int kGuardedIdLetters = 32;
constexpr size_t kMostLogged = 256;

}  // namespace

CompletionService::CompletionService(TaskRunner& loop, EngineService& engine, const ApiContext& context,
                                     Metrics& metrics, IgnoredFields& ignored_fields, ServerLog& log,
                                     const Options& options)
    : loop_(loop),
      engine_(engine),
      context_(context),
      metrics_(metrics),
      ignored_fields_(ignored_fields),
      log_(log),
      options_(options) {
  keep_streams_open();
}

void CompletionService::start(const Dialect& dialect, std::shared_ptr<HttpExchange> exchange,
                              int64_t arrival_ns) {
  if (refusal_) return answer_error(*exchange, *refusal_);
  check_room(1);
  ++num_parsing_;
  const bool takes_long = exchange->request().has_large_body();
  const std::string_view body = exchange->request().body;
  const auto parse = [this, &dialect, exchange = std::move(exchange), arrival_ns] {
    const auto request = std::make_shared<CompletionRequest>();
    const auto go_on = [this, exchange, request, arrival_ns](const std::optional<ApiError>& error) {
      loop_.post([=, this] {
        --num_parsing_;
        exchange->drop_body();
        if (exchange->is_closed()) return;
        try {
          if (refusal_) throw *refusal_;
          if (error) throw *error;
          ignored_fields_.tell(*exchange, request->ignored_fields);
          submit(exchange, std::move(*request), arrival_ns);
        } catch (const std::exception& ended) {
          answer_error(*exchange, failure(ended));
        }
      });
    };
    try {
      *request = dialect.parse(exchange->request().body, context_);
    } catch (const std::exception& error) {
      return go_on(failure(error));
    }
    find_grammar(request, go_on);
  };
  if (dialect.takes_long == nullptr || takes_long) return loop_.run_in_background(parse, takes_long);
  loop_.run_in_background([this, &dialect, body, parse] {
    dialect.takes_long(body, context_) ? loop_.run_in_background(parse, true) : parse();
  });
}

/// Calls `go_on`, here or on another thread, when the request has the grammar of its form, or with the reason why it gets none. No
/// thread waits for a grammar that is being compiled.
void CompletionService::find_grammar(const std::shared_ptr<CompletionRequest>& request, const Parsed& go_on) {
  const std::shared_ptr<const StructuredOutput> form = request->form;
  if (!form) return go_on(std::nullopt);
  const bool is_new =
      context_.grammars->ask(form->key, [request, form, go_on](const GrammarCache::Outcome& outcome) {
        request->grammar = outcome.grammar;
        go_on(outcome.error ? std::optional(refusal_of(*form, outcome.error)) : std::nullopt);
      });
  if (is_new) loop_.run_apart([this, form] { context_.grammars->compile(form->key, form->build); });
}

void CompletionService::submit(const std::shared_ptr<HttpExchange>& exchange, CompletionRequest request,
                               int64_t arrival_ns) {
  check_room(static_cast<size_t>(request.num_choices()));
  if (!exchange->hold(request.held_bytes)) throw ApiError(503, kNoRoom);
  if (!request.dialect->id_header.empty())
    exchange->add_header(std::string(request.dialect->id_header), exchange->request().id);
  const std::string id = unused_id(request, exchange->request().id);
  const auto job = std::make_shared<CompletionJob>(loop_, exchange, std::move(request), id, arrival_ns,
                                                   context_, metrics_);
  job->on_problem([this, request_id = exchange->request().id](const std::string& problem) {
    log_.write(LogLevel::warning, "an answer has text that cannot be read as a call",
               {{"id", request_id}, {"problem", problem}});
  });
  int32_t choice = 0;
  for (const std::string& engine_id : job->engine_ids())
    live_.emplace(engine_id, LiveChoice{job, choice++});
  exchange->on_closed([this, ids = job->engine_ids()] { engine_.cancel(ids); });
  engine_.submit(job->engine_requests());
}

/// Throws the answer to a request if there is no room for its choices.
void CompletionService::check_room(size_t num_choices) const {
  if (num_live() + num_choices <= options_.max_live_choices) return;
  throw ApiError(
      429,
      fmt::format("the queue is full: {} of {} choices are in it and this request has {}; try again later",
                  num_live(), options_.max_live_choices, num_choices));
}

/// Draws an unused id: a client may send the same x-request-id twice, or one that looks like another request's choice.
std::string CompletionService::unused_id(const CompletionRequest& request, const std::string& request_id) {
  const Dialect& dialect = *request.dialect;
  if (dialect.guards_ids) return draw_id(dialect.id_prefix, kGuardedIdLetters);
  const std::string wanted = fmt::format("{}{}", dialect.id_prefix, request_id);
  std::string id = wanted;
  const auto is_used = [&] {
    for (int32_t choice = 0; choice < request.num_choices(); ++choice) {
      if (live_.contains(engine_id_of(id, request, choice))) return true;
    }
    return false;
  };
  while (is_used())
    id = fmt::format("{}-{}", wanted, ++num_repeated_ids_);
  return id;
}

void CompletionService::on_outputs() {
  std::vector<std::shared_ptr<CompletionJob>> to_send;
  for (RequestOutput& output : engine_.take_outputs()) {
    const auto found = live_.find(output.id);
    if (found == live_.end()) continue;
    const LiveChoice live = found->second;
    if (output.finish) live_.erase(found);
    try {
      live.job->take(live.choice, std::move(output));
    } catch (const std::bad_alloc& error) {
      live.job->fail(failure(error));
    }
    to_send.push_back(live.job);
  }
  for (const std::shared_ptr<CompletionJob>& job : to_send) {
    job->send();
    const std::vector<std::string> unwanted = job->failed() ? job->engine_ids() : job->take_unwanted();
    if (!unwanted.empty()) engine_.cancel(unwanted);
  }
}

/// Looks at the streams regularly, so that none is quiet for longer than the interval.
void CompletionService::keep_streams_open() {
  const std::chrono::milliseconds period = options_.comment_interval / 10 + std::chrono::milliseconds(1);
  for (auto& [id, live] : live_)
    live.job->keep_open(now_ns(), options_.comment_interval - period);
  loop_.post_after(period, [this] { keep_streams_open(); });
}

void CompletionService::fail_all(const ApiError& error) {
  refuse_new(error);
  std::vector<std::string> ids;
  for (auto& [id, live] : std::exchange(live_, {})) {
    live.job->fail(error);
    ids.push_back(id);
  }
  engine_.cancel(std::move(ids));
}

void IgnoredFields::tell(HttpExchange& exchange, const std::vector<std::string>& names) {
  if (names.empty()) return;
  exchange.add_header("x-minfer-ignored-fields", fmt::format("{}", fmt::join(names, ", ")));
  std::vector<std::string> news;
  for (const std::string& name : names)
    if (logged_.size() < kMostLogged && logged_.insert(name).second) news.push_back(name);
  if (news.empty()) return;
  const std::string fields = fmt::format("{}", fmt::join(news, ","));
  log_.write(LogLevel::warning,
             "fields are ignored: this server does not know them, or the chat template does not use them",
             {{"fields", fields}, {"id", exchange.request().id}});
}

}  // namespace minfer
