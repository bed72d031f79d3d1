// The most JSON that a request may cause.
#include <gtest/gtest.h>

#include "server/api/request/request_fields.h"
#include "tests/support/server/api_outputs.h"
#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

constexpr int64_t kMega = 1'000'000;

class AnswerSizeTest : public testing::Test {
 protected:
  AnswerSizeTest() { api_.context.max_model_len = 131'072; }

  std::optional<ApiError> error_of(const Dialect& dialect, const std::string& members) const {
    return test::api_error_of([&] { dialect.is_chat ? api_.chat(members) : api_.completion(members); });
  }

  test::TestApi api_;
};

TEST_F(AnswerSizeTest, TheEstimateIsCloseToWhatAnAnswerHas) {
  constexpr size_t kTokens = 200;
  const TokenId word = api_.tokenizer().encode("hello").front();
  for (const Dialect* dialect : {&kChatDialect, &kCompletionsDialect}) {
    for (const int num_top : {0, 5, 20}) {
      const std::string members = dialect->is_chat
                                      ? fmt::format(R"("n":2,"logprobs":true,"top_logprobs":{})", num_top)
                                      : fmt::format(R"("n":2,"logprobs":{})", num_top);
      const CompletionRequest request = dialect->is_chat ? api_.chat(members) : api_.completion(members);
      const auto response = dialect->answer(request, {"cmpl-1", 1700000001}, api_.context, false);
      for (const int32_t choice : {0, 1}) {
        RequestOutput made = test::output(std::string(5 * kTokens, 'x'), {}, kTokens, FinishReason::length);
        SampledToken token{word, -12.345678f, {}};
        for (TokenId i = 0; i < num_top; ++i)
          token.top.push_back({60 + i, -12.345678f});
        made.logprobs.assign(kTokens, token);
        test::add(*response, choice, made);
      }
      const auto bytes = static_cast<double>(test::whole_body(*response).size());
      const double ratio = static_cast<double>(estimate_answer_bytes(request, kTokens)) / bytes;
      EXPECT_GT(ratio, 0.5) << num_top;
      EXPECT_LT(ratio, 2.0) << num_top;
    }
  }
}

TEST_F(AnswerSizeTest, WhatIsLargerThanTheLimitIsRefusedWithFieldsAndLimit) {
  const std::string many = R"("n":128,"logprobs":true,"top_logprobs":20,"max_tokens":)";
  EXPECT_FALSE(error_of(kChatDialect, many + "300")) << "54 MB";
  const auto error = error_of(kChatDialect, many + "1500");
  ASSERT_TRUE(error) << "271 MB";
  EXPECT_EQ(error->status(), 400);
  const std::string message = error->what();
  for (const char* part :
       {"max_tokens", "1500", "128 choices", "20 alternatives", "134 MB", "--max-answer-bytes"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  EXPECT_FALSE(error_of(kChatDialect, R"("n":128,"max_tokens":1500)")) << "without logprobs";
}

TEST_F(AnswerSizeTest, TheLogprobsOfEchoedPromptsCount) {
  api_.context.limits.max_answer_bytes = kMega;
  std::string prompt = "1";
  for (int i = 1; i < 5000; ++i)
    prompt += ",1";
  const auto body = [&](const std::string& members) {
    return R"({"model":"small","prompt":[)" + prompt + R"(],"max_tokens":1,)" + members + "}";
  };
  const auto error_of_body = [&](const std::string& members) {
    return test::api_error_of([&] { parse_completion_request(body(members), api_.context); });
  };
  EXPECT_FALSE(error_of_body(R"("logprobs":20)"));
  EXPECT_FALSE(error_of_body(R"("logprobs":2,"echo":true)"));
  EXPECT_TRUE(error_of_body(R"("logprobs":20,"echo":true)"));
  EXPECT_TRUE(error_of_body(R"("logprobs":2,"echo":true,"n":10)"));
}

TEST_F(AnswerSizeTest, AnAnswerWithoutALengthIsAsLongAsTheLimitAllows) {
  api_.context.limits.max_answer_bytes = kMega;
  const CompletionRequest request = api_.chat(R"("logprobs":true,"top_logprobs":20)");
  EXPECT_LE(estimate_answer_bytes(request, request.sampling.max_tokens), kMega);
  EXPECT_GT(estimate_answer_bytes(request, request.sampling.max_tokens + 1), kMega);
  EXPECT_EQ(api_.chat().sampling.max_tokens, 131'072 - 19) << "of text alone there is room for more";
}

}  // namespace
}  // namespace minfer
