#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "server/api/fields/json_fields.h"
#include "server/api/request/completion_request.h"

namespace minfer {

/// Ollama's API. An answer is an object: {"model","created_at","message":{"role","content","thinking","tool_calls"},"done":true,
/// "done_reason","total_duration",...}, times in ns; of /api/generate "response" and "thinking" instead of "message". A stream has
/// such an object a line, with new text and "done":false, and a last one without text. A call comes whole, in a line of its own; one
/// that was cut off is left out. load_duration is the time in the queue.
extern const Dialect kOllamaChatDialect;      ///< POST /api/chat
extern const Dialect kOllamaGenerateDialect;  ///< POST /api/generate

/// GET /api/tags, POST /api/show, GET /api/ps and GET /api/version.
extern const Endpoint kOllamaEndpoints[4];

/// Both read `options`; fields that nothing here can honour are refused or named as ignored. Throw ApiError as
/// parse_completion_request() does.
CompletionRequest parse_ollama_chat(std::string_view body, const ApiContext& context);
CompletionRequest parse_ollama_generate(std::string_view body, const ApiContext& context);

/// messages for the template: thinking becomes reasoning_content; calls get ids. A result belongs to the first call without one
/// that has its tool_call_id or its tool_name, or to the first of all if it has neither.
nlohmann::ordered_json read_ollama_messages(JsonFields& fields);

/// The answer of /api/show: {"details","model_info","capabilities","modified_at"}. 404 for a model that is not served.
std::string ollama_show_response(std::string_view body, const ApiContext& context, UnknownFields& unknown);

/// {"error":MESSAGE}.
std::string ollama_error_json(const ApiError& error);

/// What may stand behind a model's name.
inline constexpr std::string_view kOllamaTag = ":latest";
/// A time as Ollama writes it: RFC 3339, UTC. `unix_s`: in seconds.
std::string ollama_time(int64_t unix_s);

}  // namespace minfer
