// Any answer in any format, in any pieces: the pieces do not matter, complete calls have a JSON object as their arguments, and text that
// is no call stays as it was written.
//
// An input is the name of a format, a line end, a byte of options, a byte that says how to cut, and the answer.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/chat/answer/chat_answer_parser.h"
#include "models/tokenizer/utf8.h"
#include "tests/fuzz/require.h"
#include "tests/support/models/parsed_answer.h"

namespace minfer {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kTools =
    R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {
  "a": {"type": "string"}, "b": {"type": "boolean"}, "c": {"anyOf": [{"type": "object"}, {"type": "null"}]}}}}}])";

test::ParsedAnswer parse(const ChatFormat* format, const ChatAnswerOptions& options, std::string_view text,
                         const std::vector<size_t>& cuts) {
  const auto parser = make_chat_answer_parser(format, options);
  return test::parse_answer(*parser, test::pieces_of(text, cuts));
}

/// True for valid JSON that the check refuses: halves of surrogate pairs, and numbers beyond a double's range.
bool is_beyond_check(const std::string& arguments) {
  size_t num_digits = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const char c = arguments[i];
    num_digits = c >= '0' && c <= '9' ? num_digits + 1 : 0;
    const bool is_exponent = i > 0 && c >= '0' && c <= '9' &&
                             std::string_view("eE+").find(arguments[i - 1]) != std::string_view::npos;
    if (is_exponent || num_digits == 300 || arguments.compare(i, 3, "\\ud") == 0 ||
        arguments.compare(i, 3, "\\uD") == 0)
      return true;
  }
  return false;
}

void check(const ChatFormat* format, const ChatAnswerOptions& options, std::string_view text, uint32_t seed) {
  const test::ParsedAnswer whole = parse(format, options, text, {});
  REQUIRE(whole.violation.empty());
  std::mt19937 random(seed);
  std::vector<size_t> cuts;
  for (size_t i = 0; i < text.size(); ++i) {
    if (seed % 4 == 0 || random() % (seed % 16 + 1) == 0) cuts.push_back(i);
  }
  REQUIRE(parse(format, options, text, cuts) == whole);

  const bool is_utf8 = valid_utf8_prefix(text) == text.size();
  for (const test::ParsedAnswer::Call& call : whole.calls) {
    REQUIRE(options.finds_calls);
    if (!call.is_whole || !is_utf8 || is_beyond_check(call.arguments)) continue;
    const ordered_json arguments = ordered_json::parse(call.arguments, nullptr, false);
    REQUIRE(arguments.is_object());
  }
  REQUIRE(options.finds_reasoning || whole.reasoning.empty());
  REQUIRE(format == nullptr || name(*format) == "gpt_oss" || options.finds_calls || options.finds_reasoning ||
          whole.content == text);
  // No text is invented.
  REQUIRE(whole.content.size() + whole.reasoning.size() <= text.size());
}

}  // namespace
}  // namespace minfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minfer;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t line_end = bytes.find('\n');
  if (line_end == std::string_view::npos || size < line_end + 3) return 0;
  static const auto tools = std::make_shared<const ordered_json>(ordered_json::parse(kTools));
  const ChatFormat* format = find_chat_format(bytes.substr(0, line_end));
  const auto flags = static_cast<uint8_t>(bytes[line_end + 1]);
  ChatAnswerOptions options{.finds_calls = (flags & 1) == 0,
                            .finds_reasoning = (flags & 2) == 0,
                            .begins_in_reasoning = (flags & 4) != 0,
                            .open_thoughts = (flags & 16) != 0 ? std::optional<size_t>(0) : std::nullopt};
  if ((flags & 8) != 0) options.tools = tools;
  check(format, options, bytes.substr(line_end + 3), static_cast<uint8_t>(bytes[line_end + 2]));
  return 0;
}
