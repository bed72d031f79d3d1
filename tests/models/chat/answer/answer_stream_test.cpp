// When parts of an answer are sent: nothing is held back longer than necessary, and the time is linear.
#include <algorithm>
#include <memory>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/chat/answer/chat_answer_parser.h"
#include "tests/support/models/parsed_answer.h"

namespace minfer {
namespace {

using Kind = ChatDelta::Kind;

class AnswerStream {
 public:
  explicit AnswerStream(std::string_view format, std::string_view tools = {}) {
    ChatAnswerOptions options{.finds_calls = true, .finds_reasoning = true};
    if (!tools.empty())
      options.tools = std::make_shared<const nlohmann::ordered_json>(nlohmann::ordered_json::parse(tools));
    parser_ = make_chat_answer_parser(find_chat_format(format), options);
  }

  /// The deltas for `text`, as KIND:TEXT with a letter for the kind.
  std::string push(std::string_view text) {
    std::vector<ChatDelta> deltas;
    parser_->push(text, deltas);
    return show(deltas);
  }
  std::string finish() {
    std::vector<ChatDelta> deltas;
    parser_->finish(deltas);
    return show(deltas);
  }
  const ChatAnswerParser& parser() const { return *parser_; }

 private:
  static std::string show(const std::vector<ChatDelta>& deltas) {
    std::string shown;
    for (const ChatDelta& delta : deltas) {
      if (!shown.empty()) shown += '|';
      shown += "crBAE"[static_cast<int>(delta.kind)];
      if (delta.call >= 0) shown += std::to_string(delta.call);
      shown += ':' + delta.text;
    }
    return shown;
  }

  std::unique_ptr<ChatAnswerParser> parser_;
};

TEST(AnswerStream, HoldsBackOnlyWhatMayBecomeAMarker) {
  AnswerStream stream("hermes");
  EXPECT_EQ(stream.push("A <"), "c:A ");
  EXPECT_EQ(stream.push("to"), "");
  EXPECT_EQ(stream.push(" <tool<t"), "c:<to <tool");
  EXPECT_EQ(stream.push("ool_cal"), "");
  EXPECT_EQ(stream.finish(), "c:<tool_cal");
  EXPECT_EQ(stream.parser().num_calls(), 0);
  EXPECT_EQ(stream.parser().problem(), "");
}

TEST(AnswerStream, ThoughtsComeAtOnce) {
  AnswerStream stream("hermes");
  EXPECT_EQ(stream.push("<thi"), "");
  EXPECT_EQ(stream.push("nk>\nA"), "r:A");
  EXPECT_EQ(stream.push("</"), "");
  EXPECT_EQ(stream.push("b></think>"), "r:</b>");
  EXPECT_EQ(stream.push("\n\n"), "");
  EXPECT_EQ(stream.push("B"), "c:B");
  EXPECT_EQ(stream.finish(), "");
}

TEST(AnswerStream, ArgumentsComeAsTheyAreWritten) {
  AnswerStream stream("hermes");
  EXPECT_EQ(stream.push("<tool_call>{\"name\": \"f\", \"argu"), "");
  EXPECT_EQ(stream.push("ments\": {"), "B0:f|A0:{");
  EXPECT_EQ(stream.push("\"a\": \"x"), "A0:\"a\": \"x");
  EXPECT_EQ(stream.push("\\"), "A0:\\");
  EXPECT_EQ(stream.push("\"\"}"), "A0:\"\"}|E0:");
  EXPECT_EQ(stream.push("}</tool_call>\n<tool_call>{\"name\":\"g\"}"), "B1:g|A1:{}|E1:");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.parser().num_calls(), 2);
}

TEST(AnswerStream, TextsBetweenTagsComeAsTheyAreWritten) {
  AnswerStream stream(
      "qwen3_coder",
      R"([{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}])");
  EXPECT_EQ(stream.push("<tool_call>\n<function=f>\n<parameter=a>\n"), "B0:f|A0:{\"a\": ");
  EXPECT_EQ(stream.push("12"), "A0:\"12");
  EXPECT_EQ(stream.push("\nx\n</"), "A0:\\nx");
  EXPECT_EQ(stream.push("p>\n</parameter>"), "A0:\\n</p>\"");
  EXPECT_EQ(stream.push("<parameter=b>"), "A0:, \"b\": ");
  EXPECT_EQ(stream.push("[1,"), "");  // may be JSON, or a text
  EXPECT_EQ(stream.push(" 2]</parameter>"), "A0:[1, 2]");
  EXPECT_EQ(stream.push("</function>"), "A0:}|E0:");
}

TEST(AnswerStream, PythonsTextsComeAsTheyAreWritten) {
  AnswerStream stream("pythonic");
  EXPECT_EQ(stream.push("[f(a"), "");
  EXPECT_EQ(stream.push("='x"), "B0:f|A0:{\"a\": \"x");
  EXPECT_EQ(stream.push("\"y"), "A0:\\\"y");
  EXPECT_EQ(stream.push("', b=1"), "A0:\", \"b\": ");
  EXPECT_EQ(stream.push(")"), "A0:1}|E0:");
}

TEST(AnswerStream, ANameThatNeverEndsIsNotHeldBackForEver) {
  const std::pair<const char*, const char*> cases[] = {
      {"hermes", "<tool_call>{\"name\": \""},
      {"qwen3_coder", "<tool_call><function="},
      {"qwen3_coder", "<tool_call><function=f><parameter="},
      {"pythonic", "[f"},
      {"mistral", "[TOOL_CALLS]"},
      {"deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"},
      {"gpt_oss", "<|channel|>"},
  };
  for (const auto& [format, beginning] : cases) {
    SCOPED_TRACE(beginning);
    AnswerStream stream(format);
    stream.push(beginning);
    EXPECT_EQ(stream.push(std::string(200, 'n')).find("c:"), std::string::npos);
    EXPECT_NE(stream.push(std::string(400, 'n')).find("nnn"), std::string::npos);
    EXPECT_NE(stream.parser().problem(), "");
  }
}

TEST(AnswerStream, AProblemSaysWhatWasExpectedAndFound) {
  AnswerStream stream("hermes");
  stream.push("<tool_call>{\"name\" 1}");
  EXPECT_EQ(stream.parser().problem(), "call 0: expected ':' behind a key, found '1'");
  AnswerStream cut("hermes");
  cut.push("<tool_call>{\"name\": \"f\", \"arguments\": {");
  EXPECT_EQ(cut.finish(), "");
  EXPECT_EQ(cut.parser().problem(), "call 1: cut off");
}

/// A step that looked again at earlier text would take minutes here.
TEST(AnswerStream, AMegabyteOfWhatMisleads) {
  const struct {
    const char* format;
    const char* beginning;
    const char* pattern;
  } cases[] = {
      {"hermes", "", "<"},
      {"hermes", "", "<tool_call>"},
      {"hermes", "", " "},
      {"hermes", "<think>", "</think"},
      {"hermes", "<think>", "\n"},
      {"hermes", "<tool_call>", " "},
      {"hermes", "<tool_call>", "{"},
      {"hermes", "<tool_call>{\"", "a"},
      {"hermes", "<tool_call>{\"arguments\": {\"a\": \"", "<tool_call>"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"", "\\u0020"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"x\": [", "[1], "},
      {"hermes", "<tool_call>{\"name\": \"f\"}", "\n"},
      {"hermes", "", "<tool_call>{\"name\": \"f\"}"},
      {"llama3_json", "", "{"},
      {"llama3_json", "", "{\"name\": \"f\", \"parameters\": {}}; "},
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n", "\n"},
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n{", "\n</parameter"},
      {"qwen3_coder", "<tool_call>\n<function=f>", "<parameter=a>b</parameter>"},
      {"glm45", "<tool_call>", "\n"},
      {"pythonic", "[f(a='", "\\x41"},
      {"pythonic", "[f(a=", "1"},
      {"pythonic", "[", "f(a=[(1, 2), {'b': 'c'}]), "},
      {"gemma3", "", "```json\n{"},
      {"mistral", "[TOOL_CALLS]f{\"a\": [", "1, "},
      {"mistral", "", "[TOOL_CALLS]f"},
      {"deepseek_v3", "", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"},
      {"functiongemma", "<start_function_call>call:f{a:<escape>", "<escap"},
      {"gpt_oss", "", "<|channel|>"},
      {"gpt_oss", "<|channel|>commentary to=functions.f<|message|>", " "},
      {"gpt_oss", "", "<|channel|>final<|message|>a<|end|>"},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(std::string(each.format) + ": " + each.beginning + each.pattern);
    std::string text = each.beginning;
    while (text.size() < (size_t{1} << 20))
      text += each.pattern;
    const auto parser = make_chat_answer_parser(find_chat_format(each.format),
                                                {.finds_calls = true, .finds_reasoning = true});
    std::vector<std::string_view> bytes;
    for (size_t i = 0; i < text.size(); ++i)
      bytes.push_back(std::string_view(text).substr(i, 1));
    EXPECT_EQ(test::parse_answer(*parser, bytes).violation, "");
  }
}

TEST(AnswerStream, AMegabyteOfArgumentsByteByByte) {
  AnswerStream stream("hermes");
  std::string arguments = "{\"a\": [\"";
  while (arguments.size() < (size_t{1} << 20))
    arguments += "some text, \\\"escapes\\\" {and} brackets] ";
  arguments += "\"]}";
  const std::string text = "<tool_call>{\"name\": \"f\", \"arguments\": " + arguments + "}</tool_call>";
  size_t num_pieces = 0;
  for (const char c : text)
    num_pieces += stream.push(std::string_view(&c, 1)).find("A0:") != std::string::npos ? 1 : 0;
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(num_pieces, arguments.size());
}

}  // namespace
}  // namespace minfer
