#pragma once

#include "server/api_error.h"
#include "server/http_message.h"

namespace minfer {

/// Answers with the error object and its status; says when to try again where that helps.
void answer(HttpExchange& exchange, const ApiError& error);

}  // namespace minfer
