#include "server/serving/profile/profile_routes.h"

#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "profiling/requests/slow_requests.h"

namespace minfer {
namespace {

constexpr int64_t kDefaultSteps = 100;
constexpr int64_t kDefaultSummarySteps = 1000;
constexpr size_t kMostRequests = 100;
constexpr size_t kMostUnsent = 16;
constexpr size_t kMostStreams = 32;
constexpr std::chrono::milliseconds kEventInterval{500};

/// A whole number of at least `least` from the query; nothing if it is not there.
std::optional<int64_t> query_integer(const HttpRequest& request, std::string_view name, int64_t least) {
  const std::string text = request.query_value(name);
  if (text.empty()) return std::nullopt;
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < least)
    throw bad_request(name, "\"{}\", expected a whole number of at least {}", text, least);
  return number;
}

RequestOrder query_order(const HttpRequest& request) {
  const std::string by = request.query_value("by");
  for (const RequestOrder order : {RequestOrder::e2e, RequestOrder::ttft, RequestOrder::itl})
    if (by.empty() || by == name(order)) return order;
  throw bad_request("by", "\"{}\", expected e2e, ttft or itl", by);
}

}  // namespace

ProfileRoutes::ProfileRoutes(const ProfileSources& sources, ProfileHeader header,
                             const std::filesystem::path& folder)
    : sources_(sources),
      ceilings_key_(ceilings_key(sources.engine.backend_info(), MINFER_VERSION)),
      profile_(sources.engine.recorder(), header),
      capture_(sources, std::move(header), folder),
      events_(sources.loop, kEventInterval,
              [this](EventStream::Ready ready) { make_event(std::move(ready)); }) {}

void ProfileRoutes::add_to(Api& api,
                           std::function<ProfileRoutes&(HttpExchange& exchange, bool keeps)> choose) {
  const auto add_view = [&](const char* path, View (ProfileRoutes::*view)(const HttpRequest&)) {
    api.add("GET", path, [choose, view](const std::shared_ptr<HttpExchange>& exchange) {
      ProfileRoutes& routes = choose(*exchange, true);
      routes.answer_with(exchange, (routes.*view)(exchange->request()));
    });
  };
  add_view("/profile/steps", &ProfileRoutes::steps_view);
  add_view("/profile/summary", &ProfileRoutes::summary_view);
  add_view("/profile/requests", &ProfileRoutes::requests_view);
  api.add("GET", "/profile/events", [choose](const std::shared_ptr<HttpExchange>& exchange) {
    EventStream& events = choose(*exchange, false).events_;
    if (events.num_clients() >= kMostStreams)
      throw ApiError(429, fmt::format("{} pages watch the profile, the limit", kMostStreams));
    events.add(exchange);
  });
  api.add("POST", "/start_profile", [choose](const std::shared_ptr<HttpExchange>& exchange) {
    choose(*exchange, true).capture_.start(exchange);
  });
  api.add("POST", "/stop_profile", [choose](const std::shared_ptr<HttpExchange>& exchange) {
    choose(*exchange, true).capture_.stop(exchange);
  });
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
    if (profile_.beats_ceilings() && !std::exchange(told_of_beaten_, true))
      measure_ceilings_again(ceilings_key_);
    return profile_summary_json(profile_, count, sources_);
  };
}

ProfileRoutes::View ProfileRoutes::requests_view(const HttpRequest& request) {
  return [this, id = request.query_value("id"), order = query_order(request)] {
    profile_.refresh();
    SlowestRequests chosen(order, kMostRequests);
    for (EndedRequest& each : sources_.recent.last_requests(RecentRecords::kMost)) {
      if (!id.empty() && each.id != id) continue;
      each.set_client_wait_after(now_ns());
      chosen.request(std::move(each));
    }
    SlowRequests found = chosen.slowest();
    add_steps(found.slowest, profile_.last(static_cast<size_t>(-1)));
    return slow_requests_json(found);
  };
}

void ProfileRoutes::answer_with(std::shared_ptr<HttpExchange> exchange, View view) {
  std::erase_if(unsent_, [](const std::weak_ptr<HttpExchange>& each) { return each.expired(); });
  if (unsent_.size() >= kMostUnsent)
    throw ApiError(429, fmt::format("{} views of the profile are being sent, the limit", unsent_.size()));
  unsent_.push_back(exchange);
  waiting_.push_back({std::move(view), std::move(exchange), {}});
  compute_next();
}

void ProfileRoutes::make_event(EventStream::Ready ready) {
  const auto view = [this] {
    profile_.refresh();
    return page_.json(profile_, sources_, sources_.recent.last_requests(PageEvents::kRequests));
  };
  waiting_.push_back({view, nullptr, std::move(ready)});
  compute_next();
}

void ProfileRoutes::compute_next() {
  while (!waiting_.empty() && waiting_.front().exchange && waiting_.front().exchange->is_closed())
    waiting_.pop_front();
  if (computing_ || waiting_.empty()) return;
  computing_ = true;
  sources_.loop.run_in_background([this, task = std::move(waiting_.front())] {
    HttpResponse response{.headers = {{"cache-control", "no-store"}}};
    try {
      response.body = task.view();
    } catch (const std::exception& error) {
      if (task.exchange) response = error_response({}, ApiError(500, error.what()));
    }
    sources_.loop.post(
        [this, exchange = task.exchange, ready = task.ready, response = std::move(response)]() mutable {
          exchange ? exchange->respond(std::move(response)) : ready(response.body);
          computing_ = false;
          compute_next();
        });
  });
  waiting_.pop_front();
}

}  // namespace minfer
