#pragma once

#include <string>
#include <string_view>

#include "server/http/http_message.h"
#include "server/openai/api_error.h"

namespace minfer {

/// The error object in the form of the API that the path belongs to.
std::string error_body(std::string_view path, const ApiError& error);

/// Answers with the error object and its status; says when to try again where that helps.
void answer(HttpExchange& exchange, const ApiError& error);

}  // namespace minfer
