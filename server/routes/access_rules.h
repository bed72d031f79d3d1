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
  /// Names under which this server is reached, beside localhost and addresses. "*": any name.
  std::vector<std::string> allowed_hosts = {};
  /// Origins ("https://app.example") whose pages may ask this server and read its answers. "*": any.
  std::vector<std::string> cors_origins = {};
};

/// The keys in a file: one a line, without white space around it; empty lines and those that begin with '#' do
/// not count. Throws Error if the file cannot be read or holds no key.
std::vector<std::string> read_api_keys(const std::string& path);

/// Who may ask. A web page that somebody else serves must not use a server by way of its reader's browser, be it by the server's address or
/// by a name of the page's own that is made to point there (DNS rebinding): such requests carry that page's Origin, or its Host. Immutable.
class AccessRules {
 public:
  /// `is_loopback`: the server listens to this machine only. Throws Error for an empty key or an origin that
  /// no browser would send.
  AccessRules(AccessOptions options, bool is_loopback);

  bool needs_key() const { return !options_.api_keys.empty(); }
  /// Why a request is refused for the page or the name that it comes by: 403. Names are checked where the
  /// server listens to this machine only, or names were given; pages there and wherever no key is asked for.
  std::optional<ApiError> refusal_of_page(const HttpRequest& request) const;
  /// Why it is refused for its key, in Authorization or, as Anthropic's clients send it, x-api-key: 401. Takes time that depends on the lengths alone.
  std::optional<ApiError> refusal_of_key(const HttpRequest& request) const;

  /// What every answer to the request says to browsers about pages of other origins.
  HttpHeaders cors_headers(const HttpRequest& request) const;
  /// The answer to a browser that asks, before the request itself, whether a page may send it. Nothing if it
  /// is no such question or of a page that may not. `methods`: those that the path knows.
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
