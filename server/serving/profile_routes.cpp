#include "server/serving/profile_routes.h"

#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "server/serving/answer.h"
#include "server/serving/profile_summary.h"

namespace minfer {
namespace {

constexpr int64_t kDefaultSteps = 100;
constexpr int64_t kDefaultSummarySteps = 1000;
constexpr size_t kMostUnsent = 16;

/// A whole number of at least `least` from the query; nothing if it is not there.
std::optional<int64_t> query_integer(const HttpRequest& request, std::string_view name, int64_t least) {
  const std::string text = request.query_value(name);
  if (text.empty()) return std::nullopt;
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < least)
    throw bad_request(name,
                      fmt::format("{}: \"{}\", expected a whole number of at least {}", name, text, least));
  return number;
}

}  // namespace

ProfileRoutes::ProfileRoutes(const ProfileSources& sources, ProfileHeader header,
                             std::string served_model_name, const std::filesystem::path& folder)
    : sources_(sources),
      served_model_name_(std::move(served_model_name)),
      profile_(sources.engine.recorder(), header),
      capture_(sources.loop, sources.engine, sources.engine_service, sources.log, std::move(header), folder,
               sources.counters != nullptr) {}

void ProfileRoutes::add_to(Api& api) {
  api.add("GET", "/profile/steps", [this](const std::shared_ptr<HttpExchange>& exchange) {
    enqueue(exchange, steps_view(exchange->request()));
  });
  api.add("GET", "/profile/summary", [this](const std::shared_ptr<HttpExchange>& exchange) {
    enqueue(exchange, summary_view(exchange->request()));
  });
  api.add("POST", "/start_profile",
          [this](const std::shared_ptr<HttpExchange>& exchange) { capture_.start(exchange); });
  api.add("POST", "/stop_profile",
          [this](const std::shared_ptr<HttpExchange>& exchange) { capture_.stop(exchange); });
}

ProfileRoutes::View ProfileRoutes::steps_view(const HttpRequest& request) {
  const auto count = static_cast<size_t>(query_integer(request, "last", 1).value_or(kDefaultSteps));
  const std::optional<int64_t> since = query_integer(request, "since", -1);
  return [this, count, since] {
    profile_.refresh();
    return profile_steps_json(profile_, count, since, sources_.engine.recorder().dropped());
  };
}

ProfileRoutes::View ProfileRoutes::summary_view(const HttpRequest& request) {
  const auto count = static_cast<size_t>(query_integer(request, "last", 1).value_or(kDefaultSummarySteps));
  return [this, count] {
    profile_.refresh();
    return profile_summary_json(
        profile_, count,
        {.served_model_name = served_model_name_,
         .engine = sources_.engine_service.status(),
         .ttft = sources_.metrics.recent_ttft(),
         .itl = sources_.metrics.recent_itl(),
         .generated_tokens = sources_.metrics.num_generated_tokens(),
         .dropped = sources_.engine.recorder().dropped(),
         .now_ns = now_ns(),
         .counters = sources_.counters != nullptr ? sources_.counters->all() : std::vector<CounterWindow>()});
  };
}

void ProfileRoutes::enqueue(std::shared_ptr<HttpExchange> exchange, View view) {
  std::erase_if(unsent_, [](const std::weak_ptr<HttpExchange>& each) { return each.expired(); });
  if (unsent_.size() >= kMostUnsent)
    throw overloaded(fmt::format("{} views of the profile are on their way, the limit", unsent_.size()));
  unsent_.push_back(exchange);
  waiting_.emplace_back(std::move(exchange), std::move(view));
  compute_next();
}

void ProfileRoutes::compute_next() {
  while (!waiting_.empty() && waiting_.front().first->is_closed())
    waiting_.pop_front();
  if (computing_ || waiting_.empty()) return;
  computing_ = true;
  auto [exchange, view] = std::move(waiting_.front());
  waiting_.pop_front();
  sources_.loop.run_in_background([this, exchange = std::move(exchange), view = std::move(view)] {
    std::function<void()> reply;
    try {
      reply = [exchange, body = view()]() mutable {
        exchange->respond({.body = std::move(body), .headers = {{"cache-control", "no-store"}}});
      };
    } catch (const std::exception& error) {
      reply = [exchange, error = server_error(error.what())] { answer(*exchange, error); };
    }
    sources_.loop.post([this, reply = std::move(reply)] {
      reply();
      computing_ = false;
      compute_next();
    });
  });
}

}  // namespace minfer
