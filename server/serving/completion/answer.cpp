#include "server/serving/completion/answer.h"

#include <utility>

#include "server/anthropic/messages_answer.h"

namespace minfer {

std::string error_body(std::string_view path, const ApiError& error) {
  return path.starts_with("/v1/messages") ? messages_error_json(error) : error_json(error);
}

void answer(HttpExchange& exchange, const ApiError& error) {
  HttpResponse response{.status = error.status(), .body = error_body(exchange.request().path, error)};
  if (error.status() == 429 || error.status() == 503) response.headers = {{"retry-after", "1"}};
  if (error.status() == 401) response.headers = {{"www-authenticate", "Bearer"}};
  exchange.respond(std::move(response));
}

}  // namespace minfer
