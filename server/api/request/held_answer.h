#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "server/api/request/chat_prompt.h"
#include "server/api/request/structured_output.h"

namespace minfer {

/// Names of the tools of a request (in the form of any of the APIs) whose arguments are to be held to their schemas.
std::vector<std::string> strict_tool_names(const nlohmann::ordered_json& tools);

/// Has a completion held to the form that its request asks for, if any.
void hold_completion(CompletionRequest& request, const std::optional<StructuredOutput>& output,
                     const ApiContext& context);

/// The same of a chat: to the form of its content, to calls where tool_choice demands them, and to the schemas of strict tools where the
/// model calls one. Thoughts stay free. request.parsing is set. ApiError (400) for what cannot be held, by the field that asks for it.
void hold_chat_answer(CompletionRequest& request, const ChatPrompt& prompt, const ApiContext& context);

}  // namespace minfer
