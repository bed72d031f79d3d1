// The format in which answers are read.
#include <gmock/gmock.h>

#include "kernels/base/error_types.h"
#include "server/serving/completion/chat_renderer.h"

namespace minfer {
namespace {

constexpr const char* kHermes = "{{ '<tool_call>' }} {{ '</think>' }}";

class AnswerFormatTest : public testing::Test {
 protected:
  ApiContext context_for(const AnswerFormatOptions& options, std::string_view chat_template) {
    ApiContext context;
    set_answer_format(context, options, chat_template, log_);
    return context;
  }
  std::string refusal_of(const AnswerFormatOptions& options) {
    try {
      context_for(options, kHermes);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  ServerLog log_{LogFormat::text, LogLevel::off};
};

TEST_F(AnswerFormatTest, IsWhatTheTemplateShows) {
  const ApiContext hermes = context_for({}, kHermes);
  EXPECT_TRUE(hermes.finds_calls);
  EXPECT_TRUE(hermes.finds_reasoning);
  EXPECT_FALSE(hermes.short_call_ids);
  const auto parser = hermes.make_answer_parser({.finds_calls = true, .finds_reasoning = true});
  std::vector<ChatDelta> deltas;
  parser->push("<think>a</think>b<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", deltas);
  parser->finish(deltas);
  EXPECT_EQ(parser->num_calls(), 1);
  const ApiContext thinks = context_for({}, "{{ '</think>' }}");
  EXPECT_FALSE(thinks.finds_calls);
  EXPECT_TRUE(thinks.finds_reasoning);
  EXPECT_TRUE(context_for({}, "{{ '[TOOL_CALLS]' }}").short_call_ids);
  EXPECT_FALSE(context_for({}, "{{ messages }}").make_answer_parser);
  EXPECT_FALSE(context_for({}, "").make_answer_parser);
}

TEST_F(AnswerFormatTest, IsWhatTheOptionsSay) {
  const ApiContext chosen = context_for({.tool_call_parser = "hermes", .reasoning_parser = "none"}, "");
  EXPECT_TRUE(chosen.finds_calls);
  EXPECT_FALSE(chosen.finds_reasoning);
  EXPECT_FALSE(
      context_for({.tool_call_parser = "none", .reasoning_parser = "none"}, kHermes).make_answer_parser);
  EXPECT_THAT(refusal_of({.tool_call_parser = "hermse"}),
              testing::AllOf(testing::HasSubstr("--tool-call-parser: hermse"), testing::HasSubstr("hermes")));
  EXPECT_THAT(refusal_of({.reasoning_parser = "deep"}), testing::HasSubstr("--reasoning-parser: deep"));
  EXPECT_THAT(refusal_of({.tool_call_parser = "think"}), testing::HasSubstr("has no tool calls"));
}

}  // namespace
}  // namespace minfer
