#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/fields/json_fields.h"
#include "server/api/request/completion_request.h"

namespace minfer {

/// How an API writes tools.
struct ToolShape {
  std::string_view untyped = {};               ///< the type of a tool that has none; empty: each has one
  std::string_view function = "function";      ///< the type of functions
  std::string_view parameters = "parameters";  ///< the member with the schema of a function's arguments
  bool is_nested = false;  ///< a tool's members stand in an object that is named as its type
  bool needs_parameters = false;
  bool has_custom = true;       ///< it knows custom tools
  bool has_spaces = false;      ///< it knows namespaces
  bool refuses_others = false;  ///< other tools are refused; false: they are left out, as unknown fields
  std::span<const std::string_view> advice = {};  ///< members without effect here
};

/// The tools of OpenAI's chats.
inline constexpr ToolShape kChatTools{.untyped = "function", .is_nested = true, .refuses_others = true};

/// A tool that the model is shown.
struct OfferedTool {
  std::string name;                       ///< as shown
  nlohmann::ordered_json function = {};   ///< for the template, without members that it must not see
  bool is_strict = false;                 ///< its arguments are held to their schema
  bool is_custom = false;                 ///< its calls bring a text
  std::string input_lark = {};            ///< Lark grammar of that text; empty: it has none
  std::string space = {}, own_name = {};  ///< the client's two names; no namespace: empty
};

/// The tools of a request that the model is shown. Templates know functions alone. The model is shown a custom tool, whose input is
/// a text, as a function with that text as its one argument, and a tool of a namespace as SPACE__NAME; calls get the two names back.
/// Tools that the server would have to run, and custom tools whose input cannot be held to their Lark grammar, are not offered.
struct OfferedTools {
  std::vector<OfferedTool> list = {};
  nlohmann::ordered_json given = nlohmann::ordered_json::array();  ///< the same tools, as they came

  /// Adds the list `tools`, if there is one. A later tool replaces an earlier one with the same names. Throws ApiError if a tool and a
  /// namespace's tool would be shown under one name, if a function may not have its name, or if there are too many.
  void add(JsonFields& fields, const ToolShape& shape, const ApiContext& context);
  /// The name under which the model was shown a tool; `space` is empty or the namespace's name. If the tool is not offered, its
  /// plain name.
  std::string shown_name(std::string_view space, const std::string& name) const;
};

}  // namespace minfer
