#include "server/api/request/custom_tool.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

#include "models/chat/answer/chat_format.h"
#include "models/chat/answer/custom_input.h"
#include "models/grammar/grammar_source.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

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

}  // namespace

bool can_hold_lark(const ApiContext& context) {
  if (context.grammars == nullptr) return false;
  return context.call_format == nullptr ||
         std::ranges::none_of(context.call_format->calls, [](const CallOpening& opening) {
           const auto* named = std::get_if<answer::NamedCallSyntax>(&opening.syntax);
           return std::holds_alternative<answer::TaggedCallSyntax>(opening.syntax) ||
                  (named != nullptr && !named->quote.empty());
         });
}

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

}  // namespace minfer
