#include "server/routes/access_rules.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>

#include "kernels/base/error.h"

namespace minfer {
namespace {

constexpr std::string_view kAny = "*";
constexpr std::string_view kBlanks = " \t\r\n\v\f";

/// Compares in a time that depends only on the lengths.
bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  return given.size() == secret.size() && CRYPTO_memcmp(given.data(), secret.data(), given.size()) == 0;
}

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

/// The key that OpenAI's clients send, without its scheme. Empty: none.
std::string_view bearer_key(const HttpRequest& request) {
  const std::string_view given = request.header("authorization");
  if (lower_case(given.substr(0, 7)) != "bearer ") return {};
  return without_blanks(given.substr(7));
}

/// "localhost:8000" -> "localhost", "[::1]:8000" -> "[::1]".
std::string_view without_port(std::string_view authority) {
  const size_t end = authority.starts_with('[') ? authority.find(']') : authority.find(':');
  if (end == std::string_view::npos) return authority;
  return authority.substr(0, authority.starts_with('[') ? end + 1 : end);
}

/// "http://localhost:3000" -> "localhost:3000".
std::string_view authority_of(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view{} : origin.substr(scheme + 3);
}

bool names_this_machine(std::string_view host) {
  constexpr std::array<std::string_view, 3> kNames{"localhost", "127.0.0.1", "[::1]"};
  return std::ranges::find(kNames, host) != kNames.end();
}

/// True for an address: nobody can make it point elsewhere, as a name can.
bool is_address(std::string_view host) {
  in6_addr address{};
  if (host.starts_with('[') && host.ends_with(']'))
    return ::inet_pton(AF_INET6, std::string(host.substr(1, host.size() - 2)).c_str(), &address) == 1;
  return ::inet_pton(AF_INET, std::string(host).c_str(), &address) == 1;
}

bool contains(const std::vector<std::string>& list, std::string_view value) {
  return std::ranges::find(list, value) != list.end();
}

/// As browsers send origins: in lower case, without a path, "null" included.
std::string checked_origin(std::string_view text) {
  std::string origin = lower_case(text);
  if (origin.ends_with('/')) origin.pop_back();
  const std::string_view authority = authority_of(origin);
  const bool good = !authority.empty() && authority.find('/') == std::string_view::npos;
  if (!good && origin != kAny && origin != "null")
    fail("the origin \"{}\": expected something like \"https://app.example\", or \"*\"", text);
  return origin;
}

/// Names of headers and commas between them, as they can be sent back in a header.
bool is_header_list(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  });
}

}  // namespace

std::vector<std::string> read_api_keys(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail("cannot read the API keys in {}", path);
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    const std::string_view key = without_blanks(line);
    if (!key.empty() && !key.starts_with('#')) keys.emplace_back(key);
  }
  if (file.bad()) fail("cannot read the API keys in {}", path);
  if (keys.empty()) fail("{} holds no API key, and so would let everybody in", path);
  return keys;
}

AccessRules::AccessRules(AccessOptions options, bool is_loopback)
    : options_(std::move(options)), is_loopback_(is_loopback) {
  if (contains(options_.api_keys, "")) fail("an API key is empty");
  for (std::string& host : options_.allowed_hosts)
    host = lower_case(without_port(host));
  for (std::string& origin : options_.cors_origins)
    origin = checked_origin(origin);
}

bool AccessRules::shares_with(std::string_view origin) const {
  return contains(options_.cors_origins, kAny) || contains(options_.cors_origins, lower_case(origin));
}

bool AccessRules::knows_host(std::string_view authority) const {
  const std::string host = lower_case(without_port(authority));
  return names_this_machine(host) || is_address(host) || contains(options_.allowed_hosts, host) ||
         contains(options_.allowed_hosts, kAny);
}

/// Admits pages of this machine, named origins, and pages under this
/// server's own names: a proxy in front of it may have changed the Host.
bool AccessRules::admits_origin(std::string_view origin, std::string_view host) const {
  const std::string authority = lower_case(authority_of(origin));
  const std::string_view name = without_port(authority);
  if (names_this_machine(name) || contains(options_.allowed_hosts, name) || shares_with(origin)) return true;
  return !authority.empty() && authority == lower_case(host) && knows_host(host);
}

std::optional<ApiError> AccessRules::refusal_of_page(const HttpRequest& request) const {
  const std::string_view host = request.header("host");
  const bool checks_host = is_loopback_ || !options_.allowed_hosts.empty();
  if (checks_host && !host.empty() && !knows_host(host)) {
    return ApiError(
        403, fmt::format("host \"{}\": this server does not answer to that name; --allowed-hosts lists "
                         "further ones",
                         host));
  }
  const std::string_view origin = request.header("origin");
  const bool checks_origin = is_loopback_ || !needs_key();
  if (checks_origin && !origin.empty() && !admits_origin(origin, host)) {
    return ApiError(403,
                    fmt::format("origin \"{}\": pages of other hosts may not use this server; --cors-origins "
                                "lists those that may",
                                origin));
  }
  return std::nullopt;
}

std::optional<ApiError> AccessRules::refusal_of_key(const HttpRequest& request) const {
  if (!needs_key()) return std::nullopt;
  const std::string_view bearer = bearer_key(request);
  const std::string_view header = request.header("x-api-key");
  if (bearer.empty() && header.empty())
    return ApiError(401,
                    "no API key was given, expected \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"");
  bool is_known = false;
  for (const std::string& key : options_.api_keys) {
    is_known |= equal_in_constant_time(bearer, key);
    is_known |= equal_in_constant_time(header, key);
  }
  if (!is_known) return ApiError(401, "the API key is wrong");
  return std::nullopt;
}

HttpHeaders AccessRules::cors_headers(const HttpRequest& request) const {
  if (options_.cors_origins.empty()) return {};
  const bool shares_with_all = contains(options_.cors_origins, kAny);
  HttpHeaders headers;
  if (!shares_with_all) headers.emplace_back("vary", "origin");  // also where there is none: caches keep both
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !shares_with(origin)) return headers;
  headers.emplace_back("access-control-allow-origin", shares_with_all ? kAny : origin);
  headers.emplace_back("access-control-expose-headers",
                       "x-request-id, x-minfer-ignored-fields, retry-after, server-timing");
  return headers;
}

std::optional<HttpResponse> AccessRules::preflight(const HttpRequest& request,
                                                   const std::vector<std::string_view>& methods) const {
  const std::string_view origin = request.header("origin");
  if (request.method != "OPTIONS" || origin.empty() || !shares_with(origin) ||
      request.header("access-control-request-method").empty()) {
    return std::nullopt;
  }
  HttpResponse response{
      .content_type = {},
      .headers = {{"access-control-allow-methods", fmt::format("{}", fmt::join(methods, ", "))},
                  {"access-control-max-age", "600"}}};
  const std::string_view wanted = request.header("access-control-request-headers");
  if (is_header_list(wanted)) response.headers.emplace_back("access-control-allow-headers", wanted);
  return response;
}

}  // namespace minfer
