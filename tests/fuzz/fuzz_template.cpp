// Any template with any conversation: parsing and rendering succeed or are refused, within the limits; the
// resulting text is the same each time; and no byte from the conversation is at a place where special
// tokens are looked for.
//
// An input is the template, a NUL, and the conversation in JSON; without a NUL it uses a fixed conversation.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "models/chat/chat_json.h"
#include "models/chat/chat_template.h"
#include "tests/fuzz/require.h"

namespace minfer {
namespace {

constexpr std::string_view kConversation = R"({"messages": [{"role": "system", "content": "S\u00e9 \u0001"},
  {"role": "user", "content": [{"type": "text", "text": "a \u0001<b> {{ x }}"}]},
  {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f\u0001", "arguments": {"x": [1, 2.5, true]}}}]},
  {"role": "tool", "content": "42\u0001"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
  "add_generation_prompt": true, "s": " Ab, \u0001cd ", "l": [3, 1, 2], "d": {"b": 1, "a": "\u0001"}})";
constexpr char kMark = '\x01';  // in the conversation's texts

/// So small that the time for an input says something about the code.
constexpr jinja::Limits kLimits{.max_steps = 20'000, .max_bytes = 4 << 20, .max_depth = 200};

ChatInput read_conversation(std::string_view json) {
  ChatInput chat = parse_chat_input(json);
  chat.now = std::tm{.tm_sec = 5, .tm_min = 4, .tm_hour = 3, .tm_mday = 2, .tm_year = 126, .tm_wday = 5};
  return chat;
}

void check(std::string_view source, const ChatInput& chat, bool has_marks) {
  const ChatTemplate chat_template({.text = std::string(source)}, "<s>", "</s>", kLimits);
  const std::vector<PromptPart> parts = chat_template.render(chat).parts;
  const std::vector<PromptPart> again = chat_template.render(chat).parts;
  REQUIRE(parts.size() == again.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    REQUIRE(parts[i].text == again[i].text && parts[i].parse_special == again[i].parse_special);
    REQUIRE(!parts[i].text.empty());
    REQUIRE(i == 0 || parts[i].parse_special != parts[i - 1].parse_special);
    REQUIRE(!has_marks || !parts[i].parse_special || parts[i].text.find(kMark) == std::string::npos);
  }
}

}  // namespace
}  // namespace minfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t separator = bytes.find('\0');
  const std::string_view source = bytes.substr(0, separator);
  // A template can write the mark itself, as a character or as an escape.
  const bool has_marks = source.find(minfer::kMark) == std::string_view::npos &&
                         source.find('\\') == std::string_view::npos &&
                         source.find('%') == std::string_view::npos;
  try {
    static const minfer::ChatInput fixed = minfer::read_conversation(minfer::kConversation);
    if (separator == std::string_view::npos) {
      minfer::check(source, fixed, has_marks);
    } else {
      minfer::check(source, minfer::read_conversation(bytes.substr(separator + 1)), false);
    }
  } catch (const minfer::Error&) {
    return 0;  // refused
  }
  return 0;
}
