#include "server/routes/router.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/api/request/dialect.h"

namespace minfer {

HttpResponse error_response(std::string_view path, const ApiError& error) {
  const auto is_of = [path](const Dialect* dialect) {
    return path.starts_with(dialect->errors_below.empty() ? dialect->path : dialect->errors_below);
  };
  const auto found = std::ranges::find_if(dialects(), is_of);
  HttpResponse response{.status = error.status(),
                        .body = found != dialects().end() ? (*found)->error(error) : error_json(error)};
  if (error.status() == 429 || error.status() == 503) response.headers = {{"retry-after", "1"}};
  if (error.status() == 401) response.headers = {{"www-authenticate", "Bearer"}};
  if (error.status() == 415) response.headers = {{"accept-encoding", "identity"}};
  return response;
}

void answer_error(HttpExchange& exchange, const ApiError& error) {
  exchange.respond(error_response(exchange.request().path, error));
}

bool Api::Route::matches(std::string_view request_path) const {
  return request_path == path || (path.size() > 1 && path.ends_with('/') && request_path.starts_with(path));
}

std::optional<HttpResponse> Api::refusal(const HttpRequest& request) const {
  HttpResponse response;
  if (route_of(request, response) != nullptr) return std::nullopt;
  std::ranges::move(rules_.cors_headers(request), std::back_inserter(response.headers));
  return response;
}

void Api::handle(const std::shared_ptr<HttpExchange>& exchange) const {
  for (auto& [name, value] : rules_.cors_headers(exchange->request()))
    exchange->add_header(std::move(name), std::move(value));
  try {
    HttpResponse response;
    const Route* route = route_of(exchange->request(), response);
    route != nullptr ? route->handler(exchange) : exchange->respond(std::move(response));
  } catch (const std::exception& error) {
    answer_error(*exchange, failure(error));
  }
}

std::vector<std::pair<std::string, std::string>> Api::routes() const {
  std::vector<std::pair<std::string, std::string>> routes;
  for (const Route& route : routes_)
    routes.emplace_back(route.method, route.path);
  return routes;
}

const Api::Route* Api::route_of(const HttpRequest& request, HttpResponse& response) const try {
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
  if (auto preflight = rules_.preflight(request, allowed)) {
    response = std::move(*preflight);
    return nullptr;
  }
  const bool open = route != nullptr && route->open;
  if (const auto error = rules_.refusal_of_key(request); error && !open) throw *error;
  const std::string_view coding = request.header("content-encoding");
  if (!coding.empty() && lower_case(coding) != "identity")
    throw ApiError(415, fmt::format("content-encoding: {}, expected an unencoded body", coding));
  if (route != nullptr) return route;
  if (allowed.empty()) throw ApiError(404, fmt::format("there is nothing at {}", request.path));
  const std::string list = fmt::format("{}", fmt::join(allowed, ", "));
  response =
      error_response(request.path, ApiError(405, request.method + " " + request.path + ": expected " + list));
  response.headers.emplace_back("allow", list);
  return nullptr;
} catch (const ApiError& error) {
  response = error_response(request.path, error);
  return nullptr;
}

}  // namespace minfer
