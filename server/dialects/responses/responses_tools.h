#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/api/fields/json_fields.h"
#include "server/api/request/custom_tool.h"
#include "server/dialects/responses/responses_request.h"

namespace minfer {

/// The tools of a request to /v1/responses: functions in their flat form, custom tools, and namespaces of both, with
/// which agents group the tools of an MCP server. Templates know no namespaces: the model is shown SPACE__NAME, and
/// its calls get the two names back. Nor do templates know custom tools, whose input is a text: the model is shown a
/// function with that text as its one argument. Tools that the server would have to run, and custom tools whose
/// input cannot be held to their Lark grammar, are not offered: they count as unknown fields. One thread.
class ResponsesTools {
 public:
  explicit ResponsesTools(const ApiContext& context)
      : max_tools_(context.limits.max_tools), holds_lark_(can_hold_lark(context)) {}

  /// `path`: the list's. Of two tools with the same names, the later holds. Throws ApiError if
  /// a tool and a namespace's tool would be shown under one name, or if there are too many.
  void add(const nlohmann::ordered_json& list, const std::string& path, UnknownFields& unknown);

  /// The name under which the model was shown a tool; `space` is empty or the namespace's name. If the tool is not offered, its plain name.
  std::string shown_name(std::string_view space, const std::string& name) const;

  const nlohmann::ordered_json& shown() const { return shown_; }      ///< for the template
  const nlohmann::ordered_json& given() const { return given_; }      ///< accepted tools, as they came
  const std::vector<std::string>& strict() const { return strict_; }  ///< names as shown
  const FunctionSpaces& spaces() const { return spaces_; }
  const ToolNames& custom() const { return custom_; }                      ///< names as shown
  const InputGrammars& input_grammars() const { return input_grammars_; }  ///< the same

 private:
  /// The parts of a tool that the model is shown, beside its name and description.
  struct Callable {
    const nlohmann::ordered_json* parameters;
    bool is_strict;
    bool is_custom;
    std::string lark = {};  ///< see CustomTool
  };

  void add_tool(const nlohmann::ordered_json& tool, const std::string& path, UnknownFields& unknown);
  void add_space(JsonFields& fields);
  /// Adds a function or a custom tool; `space` empty: of no namespace. Returns false if it cannot be offered.
  bool add_callable(JsonFields& fields, const std::string& path, const std::string& space);
  void show(JsonFields& fields, const std::string& path, const std::string& space, const Callable& tool);

  int32_t max_tools_;
  bool holds_lark_;
  nlohmann::ordered_json shown_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json given_ = nlohmann::ordered_json::array();
  std::vector<std::string> strict_;
  FunctionSpaces spaces_;
  ToolNames custom_;
  InputGrammars input_grammars_;
};

}  // namespace minfer
