// The template language, against Jinja2's results for the same templates
// (data/jinja_snippets.txt says how).
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/chat/chat_json.h"
#include "models/chat/chat_template.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using nlohmann::ordered_json;

ordered_json read_snippets() {
  std::ifstream file(source_path("tests/models/data/jinja_snippets.json"));
  return ordered_json::parse(file);
}

ChatInput make_input(const ordered_json& snippets) {
  ordered_json input = snippets["variables"];
  input["messages"] = ordered_json::array();
  ChatInput chat = chat_input_from_json(input);
  std::tm now{};
  now.tm_year = 126;
  now.tm_mday = 2;
  now.tm_hour = 3;
  now.tm_min = 4;
  now.tm_sec = 5;
  now.tm_wday = 5;
  now.tm_yday = 1;
  chat.now = now;
  return chat;
}

std::string render(const std::string& source, const ChatInput& chat) {
  std::string text;
  for (const PromptPart& part : ChatTemplate({.text = source}, "", "").render(chat).parts)
    text += part.text;
  return text;
}

TEST(JinjaSnippets, RenderAsJinja2DoesOrFailAsItDoes) {
  const ordered_json snippets = read_snippets();
  const ChatInput chat = make_input(snippets);
  for (const ordered_json& snippet : snippets["cases"]) {
    const auto source = snippet["template"].get<std::string>();
    SCOPED_TRACE(source);
    if (snippet.contains("error")) {
      EXPECT_THROW(render(source, chat), jinja::TemplateError) << snippet["error"];
      continue;
    }
    try {
      EXPECT_EQ(render(source, chat), snippet["rendered"].get<std::string>());
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace
}  // namespace minfer
