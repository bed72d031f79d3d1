#include "server/api/request/tools.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "models/chat/answer/chat_format.h"
#include "models/chat/answer/custom_input.h"
#include "models/grammar/grammar_source.h"

namespace minfer {
namespace {

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

/// Reads the tool's grammar into `schema` and `tool`. Returns false if the grammar cannot be held.
bool read_grammar(JsonFields& grammar, bool holds_lark, Json& schema, OfferedTool& tool) {
  const std::string syntax = grammar.required_choice("syntax", {"regex", "lark"});
  const std::string definition = grammar.required_text("definition");
  if (syntax == "lark" && !holds_lark) return false;
  try {
    GrammarBuilder builder;
    // An expression is checked by itself: text that is none could become one within the anchors.
    syntax == "lark" ? add_lark(builder, definition) : add_regex(builder, definition);
  } catch (const GrammarError& error) {
    throw grammar.error("definition", "{}", error.what());
  }
  if (syntax == "lark") {
    schema["description"] = "A text by this Lark grammar:\n" + definition;
    tool.input_lark = definition;
  } else {
    schema["pattern"] = fmt::format("^(?:{})$", definition);
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

/// Reads the tool by its `format`: text, or a grammar, whose members are in the format itself (/v1/responses) or in its `grammar`
/// (/v1/chat/completions). Calls bring a text, so the model is shown a function with the text as its one argument (kCustomInput).
/// False: it is a Lark grammar that cannot be held, which counts as an unknown field. Throws ApiError (400) if the grammar cannot
/// be read.
bool read_custom_tool(JsonFields& tool, bool holds_lark, OfferedTool& made) {
  Json schema{{"type", "string"}};
  JsonFields* const format = tool.inner("format");
  if (format != nullptr && format->required_choice("type", {"text", "grammar"}) == "grammar") {
    JsonFields* const inner = format->inner("grammar");
    if (!read_grammar(inner != nullptr ? *inner : *format, holds_lark, schema, made))
      return tool.unknown().add(format->path(), "lark"), false;
  }
  made.function["parameters"] = {{"type", "object"},
                                 {"properties", {{kCustomInput, schema}}},
                                 {"required", Json::array({kCustomInput})},
                                 {"additionalProperties", false}};
  return true;
}

struct ToolReader {
  OfferedTools& tools;
  const ToolShape& shape;
  const ApiContext& context;

  void check_number(size_t number) const {
    if (number > static_cast<size_t>(context.limits.max_tools))
      throw bad_request("tools", "{} tools, expected at most {}", number, context.limits.max_tools);
  }

  void add(const Json& tool, const std::string& path, UnknownFields& unknown) const {
    JsonFields fields(tool, path, unknown);
    if (shape.has_spaces && type_of(fields) == "namespace") {
      add_space(fields);
      fields.report_unknown();
    } else if (!add_callable(fields, {})) {
      return;
    }
    tools.given.push_back(tool);
  }

  std::string type_of(JsonFields& fields) const {
    return shape.untyped.empty() ? fields.required_text("type")
                                 : fields.text("type").value_or(std::string(shape.untyped));
  }

  void add_space(JsonFields& fields) const {
    const std::string space = fields.required_text("name");
    if (space.empty()) throw fields.error("name", "empty, expected a name");
    fields.text("description");
    const Json& list = fields.required_array("tools");
    check_number(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      JsonFields tool(list[i], fmt::format("{}[{}]", fields.path("tools"), i), fields.unknown());
      add_callable(tool, space);
    }
  }

  /// Adds a function or a custom tool; `space` empty: of no namespace. Returns false if it cannot be offered.
  bool add_callable(JsonFields& outer, const std::string& space) const {
    const std::string type = type_of(outer);
    const bool is_function = type == shape.function;
    if (!is_function && !(shape.has_custom && type == "custom")) {
      if (!shape.refuses_others) return outer.unknown().add(outer.path(), type), false;
      throw unsupported(outer.path("type"), "{}, only \"function\" or \"custom\" is supported",
                        describe(Json(type)));
    }
    JsonFields& members = shape.is_nested ? outer.required_inner(type) : outer;
    const bool is_offered = add_members(members, is_function, space);
    if (is_offered || shape.is_nested) outer.report_unknown();
    return is_offered;
  }

  bool add_members(JsonFields& fields, bool is_function, const std::string& space) const {
    const std::string name = fields.required_text("name");
    if (name.empty()) throw fields.error("name", "empty, expected {}", kFunctionName);
    OfferedTool made{
        .name = joined(space, name), .is_custom = !is_function, .space = space, .own_name = name};
    made.function["name"] = made.name;
    if (auto description = fields.text("description")) made.function["description"] = *description;
    if (is_function) {
      if (shape.needs_parameters) fields.required(shape.parameters, "an object");
      if (const Json* parameters = fields.object(shape.parameters)) made.function["parameters"] = *parameters;
      const Json* strict = fields.any("strict");
      made.is_strict = strict != nullptr && *strict == true;
    } else if (!read_custom_tool(fields, can_hold_lark(context), made)) {
      return false;
    }
    for (const std::string_view advice : shape.advice)
      fields.any(advice);
    if (!is_function_name(made.name)) throw wrong_value(fields.path("name"), made.name, kFunctionName);
    // An earlier tool of the same names goes.
    const auto same = std::ranges::find(tools.list, made.name, &OfferedTool::name);
    if (same == tools.list.end()) {
      tools.list.push_back(std::move(made));
    } else if (same->space == space) {
      *same = std::move(made);
    } else {
      throw fields.error("name", "{}, but the model is shown another tool as {}", describe(Json(name)),
                         describe(Json(made.name)));
    }
    return true;
  }
};

}  // namespace

void OfferedTools::add(JsonFields& fields, const ToolShape& shape, const ApiContext& context) {
  const Json* more = fields.array("tools");
  if (more == nullptr) return;
  const ToolReader reader{*this, shape, context};
  reader.check_number(more->size());
  for (size_t i = 0; i < more->size(); ++i)
    reader.add((*more)[i], fmt::format("{}[{}]", fields.path("tools"), i), fields.unknown());
  reader.check_number(list.size());
}

std::string OfferedTools::shown_name(std::string_view space, const std::string& name) const {
  const std::string both = joined(space, name);
  const auto found = std::ranges::find(list, both, &OfferedTool::name);
  return found != list.end() && !found->space.empty() ? both : name;
}

}  // namespace minfer
