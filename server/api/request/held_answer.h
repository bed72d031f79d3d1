#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "server/api/request/chat_prompt.h"
#include "server/api/request/structured_output.h"

namespace minfer {

/// Names of the tools of a request (in the form of any of the APIs) whose arguments must match their schemas.
std::vector<std::string> strict_tool_names(const nlohmann::ordered_json& tools);

/// Holds a completion to the form that its request asks for, if any.
void hold_completion(CompletionRequest& request, const std::optional<StructuredOutput>& output,
                     const ApiContext& context);

/// Holds a chat's answer to the form of its content, to calls where tool_choice demands them, and to strict tools' schemas where the
/// model calls one. Thoughts stay free. request.parsing is set. Throws ApiError (400), by the field that asks, for what cannot be held.
void hold_chat_answer(CompletionRequest& request, const ChatPrompt& prompt, const ApiContext& context);

}  // namespace minfer
