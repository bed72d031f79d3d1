#include "server/api/request/tools.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "models/chat/answer/chat_format.h"
#include "models/chat/answer/custom_input.h"
#include "models/grammar/grammar_source.h"
#include "server/api/fields/json_fields.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxFunctionName = 128;  // Anthropic's; OpenAI's is 64
constexpr std::string_view kFunctionName = "1 to 128 of the characters a-z A-Z 0-9 _ -";

std::string joined(std::string_view space, std::string_view name) {
  return space.empty() ? std::string(name) : fmt::format("{}__{}", space, name);
}

bool is_function_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxFunctionName && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

/// A custom tool as the model is shown it. Its calls bring a text, so it is a function with the text as its one argument (kCustomInput).
struct CustomTool {
  Json parameters;         ///< JSON schema
  bool is_strict = false;  ///< the text is held to a grammar
  std::string lark;        ///< that grammar, if it is one of Lark's; else empty
};

template <class Add>
void check_grammar(const std::string& path, const Add& add) {
  try {
    GrammarBuilder builder;
    add(builder);
  } catch (const GrammarError& error) {
    throw bad_request(path, fmt::format("{}: {}", path, error.what()));
  }
}

/// Reads the tool's grammar into `schema` and `tool`. Returns false if the grammar cannot be held.
bool read_grammar(JsonFields& grammar, bool holds_lark, Json& schema, CustomTool& tool) {
  const std::string syntax = grammar.required_text("syntax");
  const std::string definition = grammar.required_text("definition");
  const std::string path = grammar.path("definition");
  if (syntax == "lark") {
    if (!holds_lark) return false;
    check_grammar(path, [&](GrammarBuilder& builder) { add_lark(builder, definition); });
    schema["description"] = "A text by this Lark grammar:\n" + definition;
    tool.lark = definition;
  } else if (syntax == "regex") {
    // Checked by itself: text that is not an expression could become one within the anchors.
    check_grammar(path, [&](GrammarBuilder& builder) { add_regex(builder, definition); });
    schema["pattern"] = fmt::format("^(?:{})$", definition);
  } else {
    throw wrong_value(grammar.path("syntax"), syntax, "regex or lark");
  }
  tool.is_strict = true;
  return true;
}

/// True if calls, as the model writes them, can be held to Lark grammars. False if a
/// text is between tags or quotes of the format's own, or if the device has no grammars.
bool can_hold_lark(const ApiContext& context) {
  if (context.grammars == nullptr) return false;
  return context.call_format == nullptr ||
         std::ranges::none_of(context.call_format->calls, [](const CallOpening& opening) {
           const auto* named = std::get_if<answers::NamedCallSyntax>(&opening.syntax);
           return std::holds_alternative<answers::TaggedCallSyntax>(opening.syntax) ||
                  (named != nullptr && !named->quote.empty());
         });
}

/// Reads the tool by its `format`: text, or a grammar, whose members are in the format itself
/// (/v1/responses) or in its `grammar` (/v1/chat/completions). Absent: it is a Lark grammar that cannot
/// be held, which counts as an unknown field. Throws ApiError (400) if the grammar cannot be read.
std::optional<CustomTool> read_custom_tool(JsonFields& tool, bool holds_lark) {
  CustomTool made;
  Json schema{{"type", "string"}};
  if (const Json* object = tool.object("format")) {
    JsonFields format(*object, tool.path("format"), tool.unknown());
    const std::string type = format.required_text("type");
    bool is_held = true;
    if (type == "grammar") {
      const Json* inner = format.object("grammar");
      JsonFields grammar(inner == nullptr ? *object : *inner,
                         inner == nullptr ? tool.path("format") : format.path("grammar"), tool.unknown());
      is_held = read_grammar(inner == nullptr ? format : grammar, holds_lark, schema, made);
      if (inner != nullptr) grammar.report_unknown();
    } else if (type != "text") {
      throw wrong_value(format.path("type"), type, "text or grammar");
    }
    if (!is_held) {
      tool.unknown().add(tool.path("format"), "lark");
      return std::nullopt;
    }
    format.report_unknown();
  }
  made.parameters = {{"type", "object"},
                     {"properties", {{kCustomInput, schema}}},
                     {"required", Json::array({kCustomInput})},
                     {"additionalProperties", false}};
  return made;
}

class ToolReader {
 public:
  ToolReader(OfferedTools& tools, const ToolShape& shape, const ApiContext& context)
      : tools_(tools),
        shape_(shape),
        max_tools_(context.limits.max_tools),
        holds_lark_(can_hold_lark(context)) {}

  void check_number(const Json& list) const {
    if (list.size() <= static_cast<size_t>(max_tools_)) return;
    throw bad_request("tools", fmt::format("tools: {} tools, expected at most {}", list.size(), max_tools_));
  }

  void add(const Json& tool, const std::string& path, UnknownFields& unknown) {
    JsonFields fields(tool, path, unknown);
    if (shape_.has_spaces && type_of(fields) == "namespace") {
      add_space(fields);
      fields.report_unknown();
    } else if (!add_callable(fields, path, {})) {
      return;
    }
    tools_.given.push_back(tool);
  }

 private:
  std::string type_of(JsonFields& fields) const {
    return shape_.untyped.empty() ? fields.required_text("type")
                                  : fields.text("type").value_or(std::string(shape_.untyped));
  }

  void add_space(JsonFields& fields) {
    const std::string space = fields.required_text("name");
    if (space.empty()) throw fields.error("name", "empty, expected a name");
    fields.text("description");
    const Json& list = fields.required_array("tools");
    check_number(list);
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string path = fmt::format("{}[{}]", fields.path("tools"), i);
      JsonFields tool(list[i], path, fields.unknown());
      add_callable(tool, path, space);
    }
  }

  /// Adds a function or a custom tool; `space` empty: of no namespace. Returns false if it cannot be offered.
  bool add_callable(JsonFields& outer, const std::string& path, const std::string& space) {
    const std::string type = type_of(outer);
    const bool is_function = type == shape_.function;
    if (!is_function && !(shape_.has_custom && type == "custom")) {
      if (!shape_.refuses_others) return outer.unknown().add(path, type), false;
      throw unsupported(outer.path("type"),
                        fmt::format("{}: {}, only \"function\" or \"custom\" is supported",
                                    outer.path("type"), describe(Json(type))));
    }
    if (!shape_.is_nested) return add_members(outer, path, is_function, space);
    const Json* object = outer.object(type);
    if (object == nullptr) throw outer.error(type, "missing, expected an object");
    JsonFields inner(*object, outer.path(type), outer.unknown());
    const bool is_offered = add_members(inner, outer.path(type), is_function, space);
    outer.report_unknown();
    return is_offered;
  }

  bool add_members(JsonFields& fields, const std::string& path, bool is_function, const std::string& space) {
    const std::string name = fields.required_text("name");
    if (name.empty()) throw fields.error("name", fmt::format("empty, expected {}", kFunctionName));
    fields.text("description");
    const Json* parameters = nullptr;
    bool is_strict = false;
    std::optional<CustomTool> custom;
    if (is_function) {
      parameters = fields.object(shape_.parameters);
      if (parameters == nullptr && shape_.needs_parameters)
        throw fields.error(shape_.parameters, "missing, expected an object");
      const Json* strict = fields.any("strict");
      is_strict = strict != nullptr && *strict == true;
    } else {
      custom = read_custom_tool(fields, holds_lark_);
      if (!custom) return false;
      parameters = &custom->parameters;
      is_strict = custom->is_strict;
    }
    for (const std::string_view advice : shape_.advice)
      fields.any(advice);
    const std::string shown = joined(space, name);
    if (!is_function_name(shown)) throw wrong_value(path + ".name", shown, kFunctionName);
    fields.report_unknown();
    Json made{{"type", "function"}, {"function", {{"name", shown}}}};
    if (const Json* description = fields.any("description")) made["function"]["description"] = *description;
    if (parameters != nullptr) made["function"]["parameters"] = *parameters;
    Json& slot = slot_for(fields, shown, name, space);
    slot = std::move(made);
    if (is_strict) tools_.strict.push_back(shown);
    if (custom) tools_.custom.insert(shown);
    if (custom && !custom->lark.empty()) tools_.input_grammars.emplace(shown, custom->lark);
    if (!space.empty()) tools_.spaces[shown] = {space, name};
    return true;
  }

  /// The place of a tool, from which an earlier one of the same names is gone.
  Json& slot_for(JsonFields& fields, const std::string& shown, const std::string& name,
                 const std::string& space) {
    const auto same = std::ranges::find_if(tools_.shown, [&](const Json& other) {
      return other["function"]["name"].get_ref<const std::string&>() == shown;
    });
    if (same == tools_.shown.end()) return tools_.shown.emplace_back();
    const auto known = tools_.spaces.find(shown);
    if ((known == tools_.spaces.end() ? std::string() : known->second.space) != space) {
      throw fields.error("name", fmt::format("{}, but the model is shown another tool as {}",
                                             describe(Json(name)), describe(Json(shown))));
    }
    std::erase(tools_.strict, shown);
    tools_.custom.erase(shown);
    tools_.input_grammars.erase(shown);
    return *same;
  }

  OfferedTools& tools_;
  const ToolShape& shape_;
  const int32_t max_tools_;
  const bool holds_lark_;
};

}  // namespace

void OfferedTools::add(const Json& list, const std::string& path, const ToolShape& shape,
                       const ApiContext& context, UnknownFields& unknown) {
  ToolReader reader(*this, shape, context);
  reader.check_number(list);
  for (size_t i = 0; i < list.size(); ++i)
    reader.add(list[i], fmt::format("{}[{}]", path, i), unknown);
  reader.check_number(shown);
}

std::string OfferedTools::shown_name(std::string_view space, const std::string& name) const {
  std::string both = joined(space, name);
  return spaces.contains(both) ? both : name;
}

}  // namespace minfer
