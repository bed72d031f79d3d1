#include "server/http/http_message.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace minfer {
namespace {

constexpr size_t kMostHeaders = 256;

/// The number of times that a header is there, and its values as one list.
std::pair<size_t, std::string> list_of(const HttpRequest& request, std::string_view lower_case_name) {
  std::pair<size_t, std::string> list;
  for (const auto& [name, value] : request.headers)
    if (name == lower_case_name) list.second += (list.first++ == 0 ? "" : ",") + value;
  return list;
}

/// If two readers saw the end of a body in different places, they would take the rest for somebody else's request.
std::optional<HttpFault> fault_of_framing(const HttpRequest& request, bool http_1_0) {
  const auto [num_lengths, length] = list_of(request, "content-length");
  auto [num_codings, codings] = list_of(request, "transfer-encoding");
  if (length.find_first_not_of("0123456789") != std::string::npos || (num_lengths > 0 && num_codings > 0))
    return HttpFault{400, "Content-Length: " + length + ", expected one number, and no Transfer-Encoding"};
  if (num_codings == 0) return std::nullopt;
  std::erase_if(codings = lower_case(codings), [](char c) { return c == ' ' || c == '\t'; });
  if (codings == "chunked" && !http_1_0) return std::nullopt;
  const bool is_coded = codings.ends_with(",chunked") && codings.find("chunked") + 7 == codings.size();
  return HttpFault{is_coded && !http_1_0 ? 501 : 400,
                   "Transfer-Encoding: " + codings + ", expected chunked alone, of HTTP/1.1"};
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    uint8_t byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

std::optional<HttpFault> take_target(HttpRequest& request, std::string_view target, bool http_1_0) {
  if (request.headers.size() > kMostHeaders)
    return HttpFault{431, fmt::format("{} headers, the limit is {}", request.headers.size(), kMostHeaders)};
  auto [num_hosts, host] = list_of(request, "host");
  if (num_hosts > 1 || (num_hosts == 0 && !http_1_0))
    return HttpFault{400, fmt::format("{} Host headers, expected one", num_hosts)};
  std::string_view place = target;
  if (!target.starts_with('/') && target != "*") {
    const size_t scheme = std::min(target.find("://"), target.size());
    const std::string name = lower_case(target.substr(0, scheme));
    place.remove_prefix(std::min(scheme + 3, target.size()));
    host = place.substr(0, place.find_first_of("/?"));
    place.remove_prefix(host.size());
    if ((name != "http" && name != "https") || host.empty())
      return HttpFault{400, "the target of the request: expected a path, or http:// with a host and a path"};
    std::erase_if(request.headers, [](const auto& header) { return header.first == "host"; });
    request.headers.emplace_back("host", host);
  }
  if (host.find_first_of(" \t/?#@\\,\"") != std::string::npos)
    return HttpFault{400, fmt::format("host \"{}\", expected NAME[:PORT]", host)};
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
