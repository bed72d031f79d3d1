#include "server/serving/api.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/serving/completion/answer.h"

namespace minfer {
bool Api::Route::matches(std::string_view request_path) const {
  return request_path == path || (path.size() > 1 && path.ends_with('/') && request_path.starts_with(path));
}

void Api::add(std::string method, std::string path, Handler handler, bool open) {
  routes_.push_back({std::move(method), std::move(path), std::move(handler), open});
}

void Api::handle(const std::shared_ptr<HttpExchange>& exchange) const {
  for (auto& [name, value] : rules_.cors_headers(exchange->request()))
    exchange->add_header(std::move(name), std::move(value));
  try {
    dispatch(exchange);
  } catch (const std::exception& error) {
    answer(*exchange, failure(error));
  }
}

std::vector<std::pair<std::string, std::string>> Api::routes() const {
  std::vector<std::pair<std::string, std::string>> routes;
  for (const Route& route : routes_)
    routes.emplace_back(route.method, route.path);
  return routes;
}

void Api::dispatch(const std::shared_ptr<HttpExchange>& exchange) const {
  const HttpRequest& request = exchange->request();
  const std::string_view method = request.method == "HEAD" ? std::string_view("GET") : request.method;
  std::vector<std::string_view> allowed;
  const Route* route = nullptr;
  for (const Route& candidate : routes_) {
    if (!candidate.matches(request.path)) continue;
    allowed.push_back(candidate.method);
    if (candidate.method == method) route = &candidate;
  }
  if (const auto error = rules_.refusal_of_page(request)) throw *error;
  // Without a key: browsers ask this of their own accord.
  if (auto response = rules_.preflight(request, allowed)) return exchange->respond(std::move(*response));
  const bool open = route != nullptr && route->open;
  if (const auto error = rules_.refusal_of_key(request); error && !open) throw *error;
  if (route != nullptr) return route->handler(exchange);
  if (allowed.empty()) throw not_found(fmt::format("there is nothing at {}", request.path));
  const ApiError error = method_not_allowed(
      fmt::format("{} {}: expected {}", request.method, request.path, fmt::join(allowed, " or ")));
  exchange->respond({.status = error.status(),
                     .body = error_body(request.path, error),
                     .headers = {{"allow", fmt::format("{}", fmt::join(allowed, ", "))}}});
}

}  // namespace minfer
