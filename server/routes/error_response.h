#pragma once

#include <string_view>

#include "server/api/fields/api_error.h"
#include "server/http/http_message.h"

namespace minfer {

/// The error object in the form of the API that the path belongs to, with its status; says when to try again where that helps.
HttpResponse error_response(std::string_view path, const ApiError& error);

void answer(HttpExchange& exchange, const ApiError& error);

}  // namespace minfer
