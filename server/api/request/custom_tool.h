#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "server/api/fields/json_fields.h"
#include "server/api/request/api_context.h"

namespace minfer {

/// A custom tool as the model is shown it. Its calls bring a text, so it is a function with the text as its one argument (kCustomInput).
struct CustomTool {
  nlohmann::ordered_json parameters;  ///< JSON schema
  bool is_strict = false;             ///< the text is held to a grammar
  std::string lark;                   ///< that grammar, if it is one of Lark's; else empty
};

/// True if calls, as the model writes them, can be held to Lark grammars. False if a
/// text is between tags or quotes of the format's own, or if the device has no grammars.
bool can_hold_lark(const ApiContext& context);

/// Reads the tool by its `format`: text, or a grammar, whose members are in the format itself
/// (/v1/responses) or in its `grammar` (/v1/chat/completions). Absent: it is a Lark grammar that cannot
/// be held, which counts as an unknown field. Throws ApiError (400) if the grammar cannot be read.
std::optional<CustomTool> read_custom_tool(JsonFields& tool, bool holds_lark);

}  // namespace minfer
