#include "server/serving/api.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/serving/answer.h"

namespace minfer {
namespace {

/// In time that depends on the lengths alone.
bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |=
        static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(secret[i % secret.size()]);
  }
  return difference == 0;
}

/// "localhost:8000" -> "localhost", "[::1]:8000" -> "[::1]".
std::string_view without_port(std::string_view authority) {
  const size_t end = authority.starts_with('[') ? authority.find(']') : authority.find(':');
  if (end == std::string_view::npos) return authority;
  return authority.substr(0, authority.starts_with('[') ? end + 1 : end);
}

bool names_this_machine(std::string_view authority) {
  constexpr std::array<std::string_view, 3> kNames{"localhost", "127.0.0.1", "[::1]"};
  return std::ranges::find(kNames, without_port(authority)) != kNames.end();
}

/// "http://localhost:3000" -> "localhost:3000".
std::string_view authority_of(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view{} : origin.substr(scheme + 3);
}

}  // namespace

bool Api::Route::matches(std::string_view request_path) const {
  return request_path == path || (path.size() > 1 && path.ends_with('/') && request_path.starts_with(path));
}

void Api::add(std::string method, std::string path, Handler handler, bool open) {
  routes_.push_back({std::move(method), std::move(path), std::move(handler), open});
}

/// A web page that somebody else serves must not reach a server on the reader's own machine, by its address
/// or by a name that points to it (DNS rebinding): such requests carry that page's Origin, or its Host.
std::optional<ApiError> Api::refusal(const HttpRequest& request, bool open) const {
  if (rules_.loopback_only) {
    const std::string_view host = request.header("host");
    if (!host.empty() && !names_this_machine(host)) {
      return ApiError(403, "invalid_request_error",
                      fmt::format("host \"{}\": this server answers to localhost and 127.0.0.1 only", host));
    }
    const std::string_view origin = request.header("origin");
    if (!origin.empty() && !names_this_machine(authority_of(origin))) {
      return ApiError(403, "invalid_request_error",
                      fmt::format("origin \"{}\": pages of other hosts may not use this server", origin));
    }
  }
  if (rules_.api_key.empty() || open) return std::nullopt;
  const std::string_view given = request.header("authorization");
  constexpr std::string_view kScheme = "Bearer ";
  if (!given.starts_with(kScheme))
    return invalid_api_key("no API key was given, expected \"Authorization: Bearer KEY\"");
  if (!equal_in_constant_time(given.substr(kScheme.size()), rules_.api_key)) {
    return invalid_api_key("the API key is wrong");
  }
  return std::nullopt;
}

void Api::handle(const std::shared_ptr<HttpExchange>& exchange) const {
  try {
    dispatch(exchange);
  } catch (const ApiError& error) {
    answer(*exchange, error);
  } catch (const std::exception& error) {
    answer(*exchange, server_error(error.what()));
  }
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
  if (const auto error = refusal(request, route != nullptr && route->open)) throw *error;
  if (route != nullptr) return route->handler(exchange);
  if (allowed.empty()) throw not_found(fmt::format("there is nothing at {}", request.path));
  const ApiError error = method_not_allowed(
      fmt::format("{} {}: expected {}", request.method, request.path, fmt::join(allowed, " or ")));
  exchange->respond({.status = error.status(),
                     .body = error_json(error),
                     .headers = {{"allow", fmt::format("{}", fmt::join(allowed, ", "))}}});
}

}  // namespace minfer
