#pragma once

#include <optional>

#include <nlohmann/json.hpp>

#include "server/openai/json_fields.h"

namespace minfer {

/// A custom tool, whose calls bring a text, as the model is shown it: a function with the text as its one argument (kCustomInput).
struct CustomTool {
  nlohmann::ordered_json parameters;  ///< JSON schema
  bool is_strict = false;             ///< the text is held to a grammar
};

/// By the tool's `format`: text, or a grammar, whose members stand in the format itself (/v1/responses) or in its `grammar`
/// (/v1/chat/completions). Absent: the format is one that cannot be kept, which counts as an unknown field.
std::optional<CustomTool> read_custom_tool(JsonFields& tool);

}  // namespace minfer
