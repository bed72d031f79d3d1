#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/fields/api_error.h"
#include "server/http/http_message.h"
#include "server/routes/access_rules.h"

namespace minfer {

/// The meaning of requests to the server: who may ask, and which function answers which path. I/O thread.
class Api {
 public:
  using Handler = std::function<void(std::shared_ptr<HttpExchange>)>;

  explicit Api(AccessRules rules) : rules_(std::move(rules)) {}

  /// `path` ending in "/" also stands for everything below it; "/" alone stands only for itself. `open`: needs no key.
  void add(std::string method, std::string path, Handler handler, bool open = false) {
    routes_.push_back({std::move(method), std::move(path), std::move(handler), open});
  }
  /// The answer to a request that reaches no handler, whatever its body says. Absent: it reaches one.
  std::optional<HttpResponse> refusal(const HttpRequest& request) const;
  /// Answers the request, or lets its handler do so.
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

/// The error object in the form of the path's API, with its status; says when to try again if that helps.
HttpResponse error_response(std::string_view path, const ApiError& error);

void answer_error(HttpExchange& exchange, const ApiError& error);

}  // namespace minfer
