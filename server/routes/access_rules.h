#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/fields/api_error.h"
#include "server/http/http_message.h"

namespace minfer {

struct AccessOptions {
  std::vector<std::string> api_keys = {};  ///< each lets a client in; none: everybody may ask
  /// Names by which clients reach this server, beside localhost and addresses. "*": any name.
  std::vector<std::string> allowed_hosts = {};
  /// Origins ("https://app.example") whose pages may ask this server and read its answers. "*": any.
  std::vector<std::string> cors_origins = {};
};

/// The keys in a file: one a line, without white space around it; ignores empty lines and
/// lines that begin with '#'. Throws Error if the file cannot be read or holds no key.
std::vector<std::string> read_api_keys(const std::string& path);

/// Who may ask. Somebody else's web page must not use a server through its reader's browser, neither by the server's address nor
/// by a name of the page's own that points there (DNS rebinding): such requests carry that page's Origin, or its Host. Immutable.
class AccessRules {
 public:
  /// `is_loopback`: the server listens to this machine only. Throws
  /// Error for an empty key or for an origin that no browser would send.
  AccessRules(AccessOptions options, bool is_loopback);

  bool needs_key() const { return !options_.api_keys.empty(); }
  /// Why a request is refused for its page or host name: 403. Names are checked if the server listens to this
  /// machine only or names were given; pages are checked if it listens to this machine only or asks for no key.
  std::optional<ApiError> refusal_of_page(const HttpRequest& request) const;
  /// Why a request is refused for its key (in Authorization or, for Anthropic's clients, x-api-key): 401. Its time depends only on lengths.
  std::optional<ApiError> refusal_of_key(const HttpRequest& request) const;

  /// The headers that tell browsers, in every answer to the request, about pages of other origins.
  HttpHeaders cors_headers(const HttpRequest& request) const;
  /// The answer to a browser that asks, before the request itself, if a page may send it.
  /// Absent if it is no such question or if the page may not. `methods`: the path's methods.
  std::optional<HttpResponse> preflight(const HttpRequest& request,
                                        const std::vector<std::string_view>& methods) const;

 private:
  bool shares_with(std::string_view origin) const;
  bool knows_host(std::string_view authority) const;
  bool admits_origin(std::string_view origin, std::string_view host) const;

  AccessOptions options_;
  bool is_loopback_;
};

}  // namespace minfer
