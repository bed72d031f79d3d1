#pragma once

#include <string>
#include <string_view>

#include "server/api/fields/json_fields.h"
#include "server/api/request/completion_request.h"

namespace minfer {

/// Ollama's API. An answer is an object: {"model","created_at","message":{"role","content","thinking","tool_calls"},"done":true,
/// "done_reason","total_duration",...}, times in ns; of /api/generate "response" and "thinking" instead of "message". A stream has
/// such an object a line, with new text and "done":false, and a last one without text. A call comes whole, in a line of its own; one
/// that was cut off is left out. load_duration is the time in the queue.
extern const Dialect
    kOllamaChatDialect;  ///< POST /api/chat; also GET /api/tags, /api/ps, /api/version and POST /api/show
extern const Dialect kOllamaGenerateDialect;  ///< POST /api/generate

/// Both read `options`; fields that nothing here can honour are refused or named as ignored. Throw ApiError as
/// parse_completion_request() does.
CompletionRequest parse_ollama_chat(std::string_view body, const ApiContext& context);
CompletionRequest parse_ollama_generate(std::string_view body, const ApiContext& context);

/// The answer of /api/show: {"details","model_info","capabilities","modified_at"}. 404 for a model that is not served.
std::string ollama_show_response(std::string_view body, const ApiContext& context, UnknownFields& unknown);

/// {"error":MESSAGE}.
std::string ollama_error_json(const ApiError& error);

}  // namespace minfer
