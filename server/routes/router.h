#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/http_message.h"
#include "server/routes/access_rules.h"

namespace minfer {

/// What requests to the server mean: who may ask, and which function answers which path. I/O thread.
class Api {
 public:
  using Handler = std::function<void(std::shared_ptr<HttpExchange>)>;

  explicit Api(AccessRules rules) : rules_(std::move(rules)) {}

  /// `path` ending in "/" stands for everything below it as well, "/" for itself alone. `open`: needs no key.
  void add(std::string method, std::string path, Handler handler, bool open = false);
  /// What a request is answered with that gets to no handler, whatever its body says. Nothing: it gets there.
  std::optional<HttpResponse> refusal(const HttpRequest& request) const;
  /// Answers the request, or has its handler do so.
  void handle(const std::shared_ptr<HttpExchange>& exchange) const;
  /// Method and path of each route, as they were added.
  std::vector<std::pair<std::string, std::string>> routes() const;

 private:
  struct Route {
    std::string method;
    std::string path;
    Handler handler;
    bool open = false;

    bool matches(std::string_view request_path) const;
  };

  /// Null: the answer is in `response`.
  const Route* route_of(const HttpRequest& request, HttpResponse& response) const;

  AccessRules rules_;
  std::vector<Route> routes_;
};

}  // namespace minfer
