#include "server/dialects/responses/responses_tools.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "server/api/fields/json_body.h"
#include "server/api/request/chat_prompt.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

std::string joined(std::string_view space, std::string_view name) {
  return space.empty() ? std::string(name) : fmt::format("{}__{}", space, name);
}

}  // namespace

void ResponsesTools::add(const Json& list, const std::string& path, UnknownFields& unknown) {
  check_num_tools(list, max_tools_);
  for (size_t i = 0; i < list.size(); ++i)
    add_tool(list[i], fmt::format("{}[{}]", path, i), unknown);
  check_num_tools(shown_, max_tools_);
}

std::string ResponsesTools::shown_name(std::string_view space, const std::string& name) const {
  std::string shown = joined(space, name);
  return spaces_.contains(shown) ? shown : name;
}

void ResponsesTools::add_tool(const Json& tool, const std::string& path, UnknownFields& unknown) {
  JsonFields fields(tool, path, unknown);
  if (fields.required_text("type") == "namespace") {
    add_space(fields);
    fields.report_unknown();
  } else if (!add_callable(fields, path, {})) {
    return;
  }
  given_.push_back(tool);
}

void ResponsesTools::add_space(JsonFields& fields) {
  const std::string space = fields.required_text("name");
  if (space.empty()) throw fields.error("name", "empty, expected a name");
  fields.text("description");
  const Json& list = fields.required_array("tools");
  check_num_tools(list, max_tools_);
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = fmt::format("{}[{}]", fields.path("tools"), i);
    JsonFields tool(list[i], path, fields.unknown());
    add_callable(tool, path, space);
  }
}

bool ResponsesTools::add_callable(JsonFields& fields, const std::string& path, const std::string& space) {
  const std::string type = fields.required_text("type");
  if (type == "function") {
    const Json* strict = fields.any("strict");
    show(fields, path, space,
         {.parameters = fields.object("parameters"),
          .is_strict = strict != nullptr && *strict == true,
          .is_custom = false});
  } else if (type == "custom") {
    const std::optional<CustomTool> tool = read_custom_tool(fields, holds_lark_);
    if (!tool) return false;
    show(fields, path, space,
         {.parameters = &tool->parameters,
          .is_strict = tool->is_strict,
          .is_custom = true,
          .lark = tool->lark});
  } else {
    fields.unknown().add(path, type);
    return false;
  }
  fields.report_unknown();
  return true;
}

void ResponsesTools::show(JsonFields& fields, const std::string& path, const std::string& space,
                          const Callable& tool) {
  const std::string name = fields.required_text("name");
  if (name.empty()) throw fields.error("name", "empty, expected a name");
  const std::string shown = joined(space, name);
  fields.text("description");
  fields.any("defer_loading");  // all are shown at once
  Json made = make_tool(shown, path, fields.any("description"), tool.parameters);

  const auto same = std::ranges::find_if(shown_, [&](const Json& other) {
    return other["function"]["name"].get_ref<const std::string&>() == shown;
  });
  const auto known = spaces_.find(shown);
  const std::string space_of_same = known == spaces_.end() ? std::string() : known->second.space;
  if (same != shown_.end() && space_of_same != space) {
    throw fields.error("name", fmt::format("{}, but the model is shown another tool as {}",
                                           describe(Json(name)), describe(Json(shown))));
  }
  std::erase(strict_, shown);
  if (tool.is_strict) strict_.push_back(shown);
  custom_.erase(shown);
  if (tool.is_custom) custom_.insert(shown);
  input_grammars_.erase(shown);
  if (!tool.lark.empty()) input_grammars_.emplace(shown, tool.lark);
  if (!space.empty()) spaces_[shown] = {space, name};
  if (same != shown_.end()) {
    *same = std::move(made);
  } else {
    shown_.push_back(std::move(made));
  }
}

}  // namespace minfer
