#include "server/routes/error_response.h"

#include <algorithm>

#include "server/dialects/dialects.h"

namespace minfer {

HttpResponse error_response(std::string_view path, const ApiError& error) {
  const auto is_of = [path](const Dialect* dialect) {
    return path.starts_with(dialect->errors_below.empty() ? dialect->path : dialect->errors_below);
  };
  const auto found = std::ranges::find_if(dialects(), is_of);
  HttpResponse response{.status = error.status(),
                        .body = found != dialects().end() ? (*found)->error(error) : error_json(error)};
  if (error.status() == 429 || error.status() == 503) response.headers = {{"retry-after", "1"}};
  if (error.status() == 401) response.headers = {{"www-authenticate", "Bearer"}};
  if (error.status() == 415) response.headers = {{"accept-encoding", "identity"}};
  return response;
}

void answer(HttpExchange& exchange, const ApiError& error) {
  exchange.respond(error_response(exchange.request().path, error));
}

}  // namespace minfer
