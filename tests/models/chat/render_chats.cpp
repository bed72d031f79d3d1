// Renders many conversations in one process, for tests/checks/check_templates.py:
//   render_chats TEMPLATE < INPUTS
// INPUTS has one JSON object a line, in the form that `minfer tokenize --chat` takes, with the variables
// bos_token and eos_token among its keys. For each it prints one line: {"parts": [[TEXT, SPECIAL], ...]},
// where SPECIAL says whether TEXT is searched for special tokens, or {"error": MESSAGE, "raised": BOOL}. The
// time is 2026-01-02 03:04:05.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "models/chat/chat_json.h"
#include "models/chat/chat_template.h"
#include "models/chat/jinja/value/errors.h"

namespace minfer {
namespace {

using nlohmann::json;

json error_line(const std::exception& error) {
  const bool raised = dynamic_cast<const jinja::TemplateRaised*>(&error) != nullptr;
  return {{"error", error.what()}, {"raised", raised}};
}

/// Renders with `chat_template`; if it is null, with the template in the variable "template", which that
/// template does not see.
json render_line(const ChatTemplate* chat_template, const std::string& line) {
  ChatInput input = parse_chat_input(line);
  std::optional<ChatTemplate> own;
  if (chat_template == nullptr) {
    const auto found =
        std::ranges::find(input.variables, "template", [](const auto& entry) { return entry.first; });
    if (found == input.variables.end() || found->second.text() == nullptr) fail("no \"template\"");
    own.emplace(ChatTemplateSource{.text = std::string(found->second.text()->bytes())}, "", "");
    input.variables.erase(found);
  }
  std::tm now{};
  now.tm_year = 126;
  now.tm_mday = 2;
  now.tm_hour = 3;
  now.tm_min = 4;
  now.tm_sec = 5;
  now.tm_wday = 5;
  now.tm_yday = 1;
  input.now = now;
  input.as_it_is = true;
  json parts = json::array();
  for (const PromptPart& part : (own ? *own : *chat_template).render(input).parts)
    parts.push_back({part.text, part.parse_special});
  return {{"parts", parts}};
}

ChatTemplate read_template(const char* path) {
  std::ifstream file(path);
  if (!file) fail<FileError>("{}: cannot be read", path);
  return {{.text = {std::istreambuf_iterator<char>(file), {}}, .name = path}, "", ""};
}

int render_all(const char* path) {
  std::optional<ChatTemplate> chat_template;
  if (path != nullptr) chat_template = read_template(path);
  for (std::string line; std::getline(std::cin, line);) {
    json result;
    try {
      result = render_line(chat_template ? &*chat_template : nullptr, line);
    } catch (const Error& error) {
      result = error_line(error);
    }
    std::cout << result.dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
  }
  return 0;
}

}  // namespace
}  // namespace minfer

int main(int argc, char** argv) {
  if (argc > 2) {
    std::cerr << "usage: render_chats [TEMPLATE] < INPUTS\n";
    return 2;
  }
  try {
    return minfer::render_all(argc == 2 ? argv[1] : nullptr);
  } catch (const minfer::Error& error) {
    std::cerr << "render_chats: error: " << error.what() << '\n';
    return 1;
  }
}
