#pragma once

#include "server/http/http_message.h"
#include "server/openai/api_error.h"

namespace minfer {

/// Answers with the error object and its status; says when to try again where that helps.
void answer(HttpExchange& exchange, const ApiError& error);

}  // namespace minfer
