#include "server/openai/custom_tool.h"

#include <string>

#include <fmt/format.h>

#include "models/chat/answer/custom_input.h"
#include "models/grammar/grammar_source.h"
#include "server/openai/json_body.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// The JSON schema's pattern of texts that match a regular expression as a whole. The expression is checked by itself: what is no
/// expression could become one within the anchors.
std::string anchored_pattern(const std::string& expression, const std::string& path) {
  try {
    GrammarBuilder builder;
    add_regex(builder, expression);
  } catch (const GrammarError& error) {
    throw bad_request(path, fmt::format("{}: {}", path, error.what()));
  }
  return fmt::format("^(?:{})$", expression);
}

/// False: the grammar is none that can be kept.
bool read_grammar(JsonFields& grammar, Json& schema) {
  const std::string syntax = grammar.required_text("syntax");
  const std::string definition = grammar.required_text("definition");
  if (syntax == "lark") return false;
  if (syntax != "regex") throw wrong_value(grammar.path("syntax"), syntax, "regex or lark");
  schema["pattern"] = anchored_pattern(definition, grammar.path("definition"));
  return true;
}

/// The JSON schema of the text. Absent: as of the tool.
std::optional<Json> read_input_schema(JsonFields& tool) {
  Json schema{{"type", "string"}};
  const Json* object = tool.object("format");
  if (object == nullptr) return schema;
  JsonFields format(*object, tool.path("format"), tool.unknown());
  const std::string type = format.required_text("type");
  if (type == "grammar") {
    const Json* inner = format.object("grammar");
    bool is_kept = false;
    if (inner == nullptr) {
      is_kept = read_grammar(format, schema);
    } else {
      JsonFields grammar(*inner, format.path("grammar"), tool.unknown());
      is_kept = read_grammar(grammar, schema);
      grammar.report_unknown();
    }
    if (!is_kept) {
      tool.unknown().add(tool.path("format"), "lark");
      return std::nullopt;
    }
  } else if (type != "text") {
    throw wrong_value(format.path("type"), type, "text or grammar");
  }
  format.report_unknown();
  return schema;
}

}  // namespace

std::optional<CustomTool> read_custom_tool(JsonFields& tool) {
  const std::optional<Json> input = read_input_schema(tool);
  if (!input) return std::nullopt;
  return CustomTool{.parameters = {{"type", "object"},
                                   {"properties", {{kCustomInput, *input}}},
                                   {"required", Json::array({kCustomInput})},
                                   {"additionalProperties", false}},
                    .is_strict = input->contains("pattern")};
}

}  // namespace minfer
