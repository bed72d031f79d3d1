#pragma once

#include <string_view>

#include "server/api/fields/api_error.h"
#include "server/http/http_message.h"

namespace minfer {

/// The error object in the form of the path's API, with its status; says when to try again if that helps.
HttpResponse error_response(std::string_view path, const ApiError& error);

void answer(HttpExchange& exchange, const ApiError& error);

}  // namespace minfer
