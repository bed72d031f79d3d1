// What a choice's outputs yield: parts, how the answer ended, tokens of reasoning.
#include "server/api/answer/answer_reader.h"

#include <gtest/gtest.h>

#include "tests/support/server/answer_pieces.h"
#include "tests/support/server/api_requests.h"
#include "tests/support/server/tag_parser.h"

namespace minfer {
namespace {

using test::output;

class AnswerReaderTest : public testing::Test {
 protected:
  AnswerReaderTest() { test::parse_tags(api_.context); }
  CompletionRequest ask(const std::string& members = {}) {
    return api_.chat(test::kChatTools + (members.empty() ? "" : "," + members));
  }
  /// "r:" for thoughts, "c:" for content, "(NAME" and ")" for a call around its arguments.
  static std::string shown(const std::vector<ChatDelta>& deltas) {
    std::string text;
    for (const ChatDelta& delta : deltas) {
      if (delta.kind == ChatDelta::Kind::reasoning) text += "r:" + delta.text + " ";
      if (delta.kind == ChatDelta::Kind::content) text += "c:" + delta.text + " ";
      if (delta.kind == ChatDelta::Kind::call_begin) text += "(" + delta.text + " ";
      if (delta.kind == ChatDelta::Kind::call_arguments) text += delta.text + " ";
      if (delta.kind == ChatDelta::Kind::call_end) text += ") ";
    }
    return text;
  }
  std::string read(AnswerReader& reader, const RequestOutput& next) {
    std::vector<ChatDelta> deltas;
    reader.read(next, deltas);
    return shown(deltas);
  }

  test::TestApi api_;
};

TEST_F(AnswerReaderTest, FindsPartsAndCountsTheTokensOfReasoning) {
  const CompletionRequest request = ask();
  AnswerReader reader(request, api_.context);
  EXPECT_EQ(read(reader, output("<r>", {1}, 1)), "");
  EXPECT_EQ(read(reader, output("hmhm", {1, 2}, 3)), "r:hmhm ");
  EXPECT_EQ(reader.reasoning_tokens(), 3) << "the marker's token counts too";
  EXPECT_EQ(read(reader, output("ab</r>cd", {1, 2, 3, 4}, 7)), "r:ab c:cd ");
  EXPECT_EQ(reader.reasoning_tokens(), 5) << "half of the bytes, half of the tokens";
  EXPECT_EQ(read(reader, output("<c:f>{}</c>", {1}, 8)), "(f {} ) ");
  EXPECT_FALSE(reader.end());
  EXPECT_EQ(read(reader, output("", {1}, 9, FinishReason::stop)), "");
  EXPECT_EQ(reader.end(), AnswerEnd::calls);
  EXPECT_EQ(read(reader, output("late", {1}, 10)), "");
  EXPECT_EQ(reader.problem(), "");
}

TEST_F(AnswerReaderTest, EndsForTheReasonThatCounts) {
  const CompletionRequest request = ask();
  const auto end_of = [&](const std::string& text, FinishReason finish, const std::string& detail = {}) {
    AnswerReader reader(request, api_.context);
    read(reader, output(text, {1}, 1, finish, detail));
    return *reader.end();
  };
  EXPECT_EQ(end_of("x", FinishReason::stop), AnswerEnd::stop);
  EXPECT_EQ(end_of("x", FinishReason::stop, "y"), AnswerEnd::stop_string);
  EXPECT_EQ(end_of("x", FinishReason::length), AnswerEnd::length);
  EXPECT_EQ(end_of("<c:f>{}</c>", FinishReason::stop), AnswerEnd::calls);
  EXPECT_EQ(end_of("<c:f>{}</c>", FinishReason::stop, "y"), AnswerEnd::stop_string);
  EXPECT_EQ(end_of("<c:f>{}</c>", FinishReason::length), AnswerEnd::length);
}

TEST_F(AnswerReaderTest, OneCallAloneEndsTheAnswer) {
  const CompletionRequest request = ask("\"parallel_tool_calls\":false");
  AnswerReader reader(request, api_.context);
  EXPECT_EQ(read(reader, output("x<c:f>{}</c>more<c:g>{}</c>", {1}, 1)), "c:x (f {} ) ");
  EXPECT_EQ(reader.end(), AnswerEnd::calls);
}

TEST_F(AnswerReaderTest, ReasoningThatIsNotWantedIsDroppedButCounts) {
  const CompletionRequest request = ask("\"include_reasoning\":false");
  AnswerReader reader(request, api_.context);
  EXPECT_EQ(read(reader, output("<r>abc</r>d", {1, 2, 3, 4}, 4, FinishReason::stop)), "c:d ");
  EXPECT_EQ(reader.reasoning_tokens(), 3);
}

TEST_F(AnswerReaderTest, ControlTokensAreForTheParserAlone) {
  const TokenId end = api_.tokenizer().encode("<|im_end|>", {.add_special = false}).at(0);
  const std::string text = "a<|im_end|>b<r>c<|im_end|></r><c:f>{}</c><|im_";
  const CompletionRequest request = ask();
  EXPECT_TRUE(request.parsing.hides_special);
  EXPECT_FALSE(request.sampling.skip_special_tokens);
  AnswerReader reader(request, api_.context);
  EXPECT_EQ(read(reader, output(text, {97, end, 98}, 3, FinishReason::stop)), "c:ab r:c (f {} ) c:<|im_ ");
  const CompletionRequest shows = ask("\"skip_special_tokens\":false");
  AnswerReader all(shows, api_.context);
  EXPECT_EQ(read(all, output(text, {97, end, 98}, 3, FinishReason::stop)),
            "c:a<|im_end|>b r:c<|im_end|> (f {} ) c:<|im_ ");
}

TEST_F(AnswerReaderTest, WithoutAParserAllIsContent) {
  api_.context.make_answer_parser = nullptr;
  const CompletionRequest request = ask();
  EXPECT_TRUE(request.sampling.skip_special_tokens);
  AnswerReader reader(request, api_.context);
  EXPECT_EQ(read(reader, output("<r>a</r><c:f>{}</c>", {1}, 1, FinishReason::stop)),
            "c:<r>a</r><c:f>{}</c> ");
  EXPECT_EQ(reader.end(), AnswerEnd::stop);
  EXPECT_EQ(reader.reasoning_tokens(), -1);
}

TEST_F(AnswerReaderTest, PartsAreJoinedAndKnowWhetherTheyAreWhole) {
  AnswerParts parts("call_", 24);
  using Kind = ChatDelta::Kind;
  for (const ChatDelta& delta : std::vector<ChatDelta>{{.kind = Kind::content, .text = "a"},
                                                       {.kind = Kind::content, .text = "b"},
                                                       {.kind = Kind::call_begin, .text = "f", .call = 0},
                                                       {.kind = Kind::call_arguments, .text = "{", .call = 0},
                                                       {.kind = Kind::call_arguments, .text = "}", .call = 0},
                                                       {.kind = Kind::call_end, .text = "", .call = 0},
                                                       {.kind = Kind::call_begin, .text = "g", .call = 1}})
    parts.add(delta);
  ASSERT_EQ(parts.parts().size(), 3u);
  EXPECT_EQ(parts.text(AnswerPart::Kind::content), "ab");
  EXPECT_EQ(parts.parts()[1].text, "{}");
  EXPECT_EQ(parts.num_calls(), 2);
  EXPECT_TRUE(parts.parts()[0].whole);
  EXPECT_TRUE(parts.parts()[1].whole);
  EXPECT_FALSE(parts.parts()[2].whole);
  EXPECT_NE(parts.parts()[1].id, parts.parts()[2].id);
  EXPECT_EQ(parts.parts()[1].id.size(), 29u);
}

}  // namespace
}  // namespace minfer
