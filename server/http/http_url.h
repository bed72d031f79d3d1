#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace minfer {

/// The address of an HTTP server.
struct HttpUrl {
  std::string host;  ///< a name or an address; IPv6 without its brackets
  uint16_t port = 80;
  std::string path;  ///< prefix of all paths there; empty or "/...", without a '/' at the end

  /// As the Host header has it.
  std::string authority() const;
};

/// Reads http://HOST[:PORT][/PATH]. Throws Error saying what is wrong with anything else: https (this program
/// speaks plain HTTP), user names, queries.
HttpUrl parse_http_url(std::string_view url);

/// `text` without the escapes of URLs (%2F). Anything that is not an escape stays as it is.
std::string percent_decoded(std::string_view text);

}  // namespace minfer
