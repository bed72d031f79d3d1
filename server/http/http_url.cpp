#include "server/http/http_url.h"

#include <algorithm>
#include <charconv>

#include "kernels/base/error.h"

namespace minfer {
namespace {

uint16_t parse_port(std::string_view url, std::string_view text) {
  uint16_t port = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), port);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || port == 0) {
    fail("{}: \"{}\" is no port, expected 1 to 65535", url, text);
  }
  return port;
}

/// Splits HOST[:PORT] or [IPv6][:PORT]; no colon: no port.
void parse_authority(std::string_view url, std::string_view authority, HttpUrl& result) {
  std::string_view host = authority.substr(0, authority.find(':'));
  std::string_view rest = authority.substr(host.size());
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) fail("{}: '[' without ']'", url);
    host = authority.substr(1, close - 1);
    rest = authority.substr(close + 1);
  }
  if (host.empty()) fail("{}: no host, expected http://HOST[:PORT]", url);
  if (!rest.empty()) {
    if (rest.front() != ':') fail("{}: \"{}\" behind the host, expected :PORT", url, rest);
    result.port = parse_port(url, rest.substr(1));
  }
  result.host = host;
}

}  // namespace

std::string HttpUrl::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
  return port == 80 ? name : fmt::format("{}:{}", name, port);
}

HttpUrl parse_http_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) fail("{}: https is not supported, expected http://HOST[:PORT]", url);
  if (!url.starts_with(kScheme)) fail("{}: expected http://HOST[:PORT]", url);
  const bool is_printable = std::ranges::all_of(url, [](char c) { return c > ' ' && c < 0x7f; });
  if (!is_printable || url.find_first_of("@?#") != std::string_view::npos) {
    fail("{}: expected http://HOST[:PORT][/PATH] without user, query or spaces", url);
  }
  const std::string_view rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  HttpUrl result;
  parse_authority(url, rest.substr(0, slash), result);
  result.path = rest.substr(slash);
  while (result.path.ends_with('/'))
    result.path.pop_back();
  return result;
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

}  // namespace minfer
