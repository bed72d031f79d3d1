#include "server/http/http_message.h"

#include <algorithm>

#include <fmt/format.h>

#include "server/http/http_url.h"

namespace minfer {
namespace {

constexpr size_t kMostHeaders = 256;

std::vector<std::string*> values_of(HttpRequest& request, std::string_view lower_case_name) {
  std::vector<std::string*> values;
  for (auto& [name, value] : request.headers)
    if (name == lower_case_name) values.push_back(&value);
  return values;
}

bool is_authority(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return c > ' ' && c < '\x7f' && std::string_view("/?#@\\,\"<>").find(c) == std::string_view::npos;
  });
}

/// Two readers that see the end of a body in different places would take the rest for a request of somebody else.
std::optional<HttpFault> fault_of_framing(HttpRequest& request, bool http_1_0) {
  const std::vector<std::string*> lengths = values_of(request, "content-length");
  const std::vector<std::string*> lists = values_of(request, "transfer-encoding");
  if (lengths.size() + std::min<size_t>(lists.size(), 1) > 1)
    return HttpFault{400, "Content-Length beside another or beside Transfer-Encoding, expected one of them"};
  if (!lengths.empty() && lengths.front()->find_first_not_of("0123456789") != std::string::npos)
    return HttpFault{400, fmt::format("Content-Length: {}, expected a number", *lengths.front())};
  if (lists.empty()) return std::nullopt;
  std::string codings;
  for (const std::string* list : lists)
    codings += (codings.empty() ? "" : ",") + lower_case(*list);
  std::erase_if(codings, [](char c) { return c == ' ' || c == '\t'; });
  if (codings == "chunked" && !http_1_0) return std::nullopt;
  const bool is_known_end = codings.ends_with(",chunked") && codings.find("chunked") + 7 == codings.size();
  return HttpFault{is_known_end && !http_1_0 ? 501 : 400,
                   fmt::format("Transfer-Encoding: {}, expected chunked alone, of HTTP/1.1", codings)};
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::optional<HttpFault> take_target(HttpRequest& request, std::string_view target, bool http_1_0) {
  if (request.headers.size() > kMostHeaders)
    return HttpFault{431, fmt::format("{} headers, the limit is {}", request.headers.size(), kMostHeaders)};
  const std::vector<std::string*> hosts = values_of(request, "host");
  if (hosts.size() > 1 || (hosts.empty() && !http_1_0))
    return HttpFault{400, fmt::format("{} Host headers, expected one", hosts.size())};
  std::string authority = hosts.empty() ? "" : *hosts.front();
  std::string_view place = target;
  if (!target.starts_with('/') && target != "*") {
    const size_t scheme = target.find("://");
    const std::string name = lower_case(target.substr(0, scheme));
    if (scheme == std::string_view::npos || (name != "http" && name != "https"))
      return HttpFault{400, "the target of the request: expected a path, or http:// with a host and a path"};
    place.remove_prefix(scheme + 3);
    authority = place.substr(0, place.find_first_of("/?"));
    place.remove_prefix(authority.size());
    if (authority.empty()) return HttpFault{400, "the target of the request: expected a host behind http://"};
    hosts.empty() ? void(request.headers.emplace_back("host", authority)) : void(*hosts.front() = authority);
  }
  if (!is_authority(authority))
    return HttpFault{400, fmt::format("host \"{}\", expected NAME[:PORT]", authority)};
  const size_t question = place.find('?');
  request.path = place.substr(0, question);
  if (request.path.empty()) request.path = "/";
  if (question != std::string_view::npos) request.query = place.substr(question + 1);
  return fault_of_framing(request, http_1_0);
}

std::string_view HttpRequest::header(std::string_view lower_case_name) const {
  const auto found = std::ranges::find(headers, lower_case_name, &HttpHeaders::value_type::first);
  return found == headers.end() ? std::string_view{} : std::string_view(found->second);
}

std::string HttpRequest::query_value(std::string_view name) const {
  std::string_view rest = query;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const size_t equals = item.find('=');
    if (item.substr(0, equals) != name) continue;
    if (equals == std::string_view::npos) return {};
    std::string value(item.substr(equals + 1));
    std::ranges::replace(value, '+', ' ');  // as forms write it
    return percent_decoded(value);
  }
  return {};
}

}  // namespace minfer
