#include "server/serving/completion/answer.h"

#include "server/anthropic/messages.h"

namespace minfer {

HttpResponse error_response(std::string_view path, const ApiError& error) {
  HttpResponse response{
      .status = error.status(),
      .body = path.starts_with("/v1/messages") ? messages_error_json(error) : error_json(error)};
  if (error.status() == 429 || error.status() == 503) response.headers = {{"retry-after", "1"}};
  if (error.status() == 401) response.headers = {{"www-authenticate", "Bearer"}};
  if (error.status() == 415) response.headers = {{"accept-encoding", "identity"}};
  return response;
}

void answer(HttpExchange& exchange, const ApiError& error) {
  exchange.respond(error_response(exchange.request().path, error));
}

}  // namespace minfer
