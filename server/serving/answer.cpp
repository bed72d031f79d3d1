#include "server/serving/answer.h"

#include <utility>

namespace minfer {

void answer(HttpExchange& exchange, const ApiError& error) {
  HttpResponse response{.status = error.status(), .body = error_json(error)};
  if (error.status() == 429 || error.status() == 503) response.headers = {{"retry-after", "1"}};
  if (error.status() == 401) response.headers = {{"www-authenticate", "Bearer"}};
  exchange.respond(std::move(response));
}

}  // namespace minfer
