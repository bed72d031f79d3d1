// Whole responses against expectations written by hand.
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/api/answer/usage.h"
#include "server/dialects/openai/openai_logprobs.h"
#include "tests/support/server/api_outputs.h"
#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::output;
using test::with_cached;
using test::with_logprobs;

class OpenAiResponseTest : public ::testing::Test {
 protected:
  std::unique_ptr<AnswerWriter> builder(const CompletionRequest& request) const {
    return request.dialect->answer(request, {"cmpl-1", 1700000001}, api_.context, false);
  }
  /// The whole body, from the outputs of the only choice.
  Json respond(const CompletionRequest& request, const std::vector<RequestOutput>& outputs) const {
    const auto made = builder(request);
    for (const RequestOutput& each : outputs) {
      EXPECT_FALSE(made->finished());
      test::add(*made, 0, each);
    }
    EXPECT_TRUE(made->finished());
    return Json::parse(test::whole_body(*made));
  }

  test::TestApi api_;
};

TEST_F(OpenAiResponseTest, ACompletion) {
  const CompletionRequest request = api_.completion();
  const auto made = builder(request);
  test::add(*made, 0, with_cached(output("a\"", {97, 34}, 2), 3));
  EXPECT_FALSE(made->finished());
  test::add(*made, 0, with_cached(output("b", {98}, 3, FinishReason::length), 3));
  ASSERT_TRUE(made->finished());
  EXPECT_EQ(
      test::whole_body(*made),
      R"({"id":"cmpl-1","object":"text_completion","created":1700000001,"model":"small",)"
      R"("system_fingerprint":"minfer-test","choices":[{"index":0,"text":"a\"b","logprobs":null,)"
      R"("finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":3,)"
      R"("total_tokens":4,"prompt_tokens_details":{"cached_tokens":3}}})");
}

TEST_F(OpenAiResponseTest, TimingsAddUp) {
  const CompletionRequest request = api_.completion(R"("timings_per_token":true)");
  const Json body = respond(
      request, {test::with_times(with_cached(output("ab", {97, 98}, 2, FinishReason::length), 1), 4)});
  const Json& timings = body["timings"];
  EXPECT_EQ(timings["cache_n"], 1);
  EXPECT_EQ(timings["prompt_n"], 0) << "all of it was in the cache";
  EXPECT_EQ(timings["prompt_per_token_ms"], 0);
  EXPECT_EQ(timings["predicted_n"], 2);
  EXPECT_EQ(timings["predicted_per_token_ms"], 2);
  EXPECT_EQ(
      timings["cache_n"].get<int>() + timings["prompt_n"].get<int>() + timings["predicted_n"].get<int>(),
      body["usage"]["total_tokens"]);
}

// A prompt that is scored but not answered.
TEST_F(OpenAiResponseTest, WithoutATokenThePromptHasItsTime) {
  const CompletionRequest request = api_.completion(R"("timings_per_token":true,"echo":true,"max_tokens":0)");
  RequestOutput scored = test::with_times(output("", {}, 0, FinishReason::length), 0);
  scored.first_token_ns = 0;
  EXPECT_EQ(respond(request, {scored})["timings"]["prompt_ms"], 20);
  scored.last_token_ns = 0;
  EXPECT_EQ(respond(request, {scored})["timings"]["prompt_ms"], 0) << "it is not known";
}

TEST_F(OpenAiResponseTest, AChat) {
  const CompletionRequest request = api_.chat(R"("service_tier":"auto")");
  const auto made = builder(request);
  test::add(*made, 0, output("h\xC3\xA9", {104, 195, 169}, 3, FinishReason::stop));
  EXPECT_EQ(
      test::whole_body(*made),
      R"({"id":"cmpl-1","object":"chat.completion","created":1700000001,"model":"small",)"
      R"("system_fingerprint":"minfer-test","service_tier":"default","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"hé","refusal":null},"logprobs":null,)"
      R"("finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":19,"completion_tokens":3,)"
      R"("total_tokens":22,"prompt_tokens_details":{"cached_tokens":0}}})");
}

TEST_F(OpenAiResponseTest, ChoicesStandInOrderAndTheirPromptsCountOnce) {
  const CompletionRequest request = parse_completion_request(
      R"({"model":"small","prompt":[[1,2,3],[4,5]],"n":2,"echo":true})", api_.context);
  const auto made = builder(request);
  for (const int32_t choice : {3, 0, 2, 1}) {
    EXPECT_FALSE(made->finished());
    const std::string text = "t" + std::to_string(choice);
    test::add(*made, choice,
              with_cached(output(text, {7, 8}, 2, FinishReason::length), choice == 1 ? 3 : choice));
  }
  const Json body = Json::parse(test::whole_body(*made));
  ASSERT_EQ(body["choices"].size(), 4u);
  for (int32_t choice = 0; choice < 4; ++choice) {
    EXPECT_EQ(body["choices"][static_cast<size_t>(choice)]["index"], choice);
    EXPECT_EQ(body["choices"][static_cast<size_t>(choice)]["text"],
              (choice < 2 ? "\x01\x02\x03" : "\x04\x05") + std::string("t") + std::to_string(choice));
  }
  EXPECT_EQ(body["usage"], Json::parse(R"({"prompt_tokens":5,"completion_tokens":8,"total_tokens":13,
                                           "prompt_tokens_details":{"cached_tokens":2}})"));
}

TEST_F(OpenAiResponseTest, StopReasonIsWhatTheClientNamed) {
  const TokenId end = api_.tokenizer().end_tokens()[0];
  const auto reason = [&](const std::string& members, const RequestOutput& last) {
    return respond(api_.completion(members), {last})["choices"][0]["stop_reason"];
  };
  EXPECT_EQ(reason("\"stop\":\"x\"", output("", {120}, 1, FinishReason::stop, "x")), "x");
  EXPECT_EQ(reason("\"stop_token_ids\":[120]", output("", {120}, 1, FinishReason::stop)), 120);
  EXPECT_EQ(reason("\"stop_token_ids\":[120]", output("", {end}, 1, FinishReason::stop)), nullptr);
  EXPECT_EQ(reason("\"stop_token_ids\":[120]", output("", {120}, 1, FinishReason::length)), nullptr);
  const std::string named_end = "\"stop_token_ids\":[" + std::to_string(end) + "]";
  EXPECT_EQ(reason(named_end, output("", {end}, 1, FinishReason::stop)), nullptr);
  EXPECT_EQ(reason(named_end + ",\"ignore_eos\":true", output("", {end}, 1, FinishReason::stop)), end);
}

TEST_F(OpenAiResponseTest, LogprobsOfAChatCarryBytes) {
  const CompletionRequest request = api_.chat("\"logprobs\":true,\"top_logprobs\":2");
  const Json body = respond(
      request, {with_logprobs(output("", {195}, 1), {{195, -0.5f, {{97, -0.25f}, {195, -0.5f}}}}),
                with_logprobs(output("\xC3\xA9", {169}, 2, FinishReason::length), {{169, -1e-9f, {}}})});
  EXPECT_EQ(body["choices"][0]["logprobs"], Json::parse(R"({"content":[
      {"token":"bytes:\\xc3","logprob":-0.5,"bytes":[195],"top_logprobs":[
         {"token":"a","logprob":-0.25,"bytes":[97]},{"token":"bytes:\\xc3","logprob":-0.5,"bytes":[195]}]},
      {"token":"bytes:\\xa9","logprob":0,"bytes":[169],"top_logprobs":[]}],"refusal":null})"));
}

TEST_F(OpenAiResponseTest, LogprobsOfACompletionCarryOffsetsInCharacters) {
  const TokenId end = api_.tokenizer().end_tokens()[0];
  const std::string end_text(api_.tokenizer().piece(end, true));
  const CompletionRequest request = api_.completion("\"logprobs\":1");
  const Json body = respond(
      request, {with_logprobs(output("a", {97, 195}, 2), {{97, -1.0f, {{97, -1.0f}}}, {195, -2.0f, {}}}),
                with_logprobs(output("\xC3\xA9", {169, 98, end}, 5, FinishReason::stop),
                              {{169, -3.0f, {}}, {98, -4.0f, {{99, -0.125f}}}, {end, -5.0f, {}}})});
  EXPECT_EQ(body["choices"][0]["text"], "a\xC3\xA9");
  Json expected = Json::parse(R"({"tokens":["a","bytes:\\xc3","bytes:\\xa9","b"],
      "token_logprobs":[-1,-2,-3,-4,-5],"text_offset":[0,1,1,2,3],
      "top_logprobs":[{"a":-1},{"bytes:\\xc3":-2},{"bytes:\\xa9":-3},{"b":-4,"c":-0.125}]})");
  expected["tokens"].push_back(end_text);
  expected["top_logprobs"].push_back({{end_text, -5.0}});
  EXPECT_EQ(body["choices"][0]["logprobs"], expected);
}

TEST_F(OpenAiResponseTest, LogprobsAreNumbersWhateverTheModelGives) {
  const float infinity = std::numeric_limits<float>::infinity();
  const CompletionRequest request = api_.completion("\"logprobs\":1");
  const Json body =
      respond(request, {with_logprobs(output("abc", {97, 98, 99}, 3, FinishReason::length),
                                      {{97, -infinity, {}}, {98, 0.0f, {}}, {99, -12.3456789f, {}}})});
  EXPECT_EQ(body["choices"][0]["logprobs"]["token_logprobs"], Json::parse("[-9999,0,-12.345679]"));
}

TEST_F(OpenAiResponseTest, OfAlternativesWithOneTextTheDrawnOneStands) {
  // A user-defined token with the text of a byte token.
  Vocabulary vocabulary = test::small_bpe_vocabulary();
  const TokenId twin = test::add_token(vocabulary, "a", TokenType::control);
  const auto tokenizer = make_tokenizer(std::move(vocabulary));
  std::string text;
  JsonText writer(text);
  TextOffsets offsets(*tokenizer, false, 0);
  const SampledToken drawn{97, -2.0f, {{twin, -1.0f}, {98, -1.5f}, {97, -2.0f}}};
  LogprobsWriter(*tokenizer, {&drawn, 1}, &offsets).write_all(writer);
  EXPECT_EQ(text, R"({"text_offset":[0],"token_logprobs":[-2],"tokens":["a"],)"
                  R"("top_logprobs":[{"a":-2,"b":-1.5}]})");
}

TEST_F(OpenAiResponseTest, AnEchoedPromptHasItsLogprobsButItsFirstTokenNone) {
  const CompletionRequest request = parse_completion_request(
      R"({"model":"small","prompt":[97,195,169],"echo":true,"logprobs":1})", api_.context);
  RequestOutput first = with_logprobs(output("b", {98}, 1), {{98, -0.5f, {{98, -0.5f}}}});
  first.prompt_logprobs = {{195, -1.0f, {{99, -0.25f}}}, {169, -2.0f, {}}};
  const Json body =
      respond(request, {first, with_logprobs(output("c", {99}, 2, FinishReason::length), {{99, -3.0f, {}}})});
  EXPECT_EQ(body["choices"][0]["text"],
            "a\xC3\xA9"
            "bc");
  EXPECT_EQ(body["choices"][0]["logprobs"],
            Json::parse(R"({"tokens":["a","bytes:\\xc3","bytes:\\xa9","b","c"],
      "token_logprobs":[null,-1,-2,-0.5,-3],"text_offset":[0,1,1,2,3],
      "top_logprobs":[null,{"bytes:\\xc3":-1,"c":-0.25},{"bytes:\\xa9":-2},{"b":-0.5},{"c":-3}]})"));
}

TEST_F(OpenAiResponseTest, OffsetsCountInTheEchoedTextNotInTheTokens) {
  // BOS and the space in front of the first word do not belong to the text.
  const auto tokenizer = make_tokenizer(test::small_sentencepiece_vocabulary());
  api_.context.tokenizer = tokenizer.get();
  const CompletionRequest request = parse_completion_request(
      R"({"model":"small","prompt":"the the","echo":true,"logprobs":0})", api_.context);
  ASSERT_EQ(request.prompts[0].size(), 3u);
  const TokenId the = request.prompts[0][1];
  RequestOutput only = with_logprobs(output(" the", {the}, 1, FinishReason::length), {{the, -1.0f, {}}});
  only.prompt_logprobs = {{the, -1.0f, {}}, {the, -1.0f, {}}};
  const Json choice = respond(request, {only})["choices"][0];
  EXPECT_EQ(choice["text"], "the the the");
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::parse("[0,0,3,7]"));
  EXPECT_EQ(choice["logprobs"]["tokens"], Json::parse(R"(["<s>"," the"," the"," the"])"));
}

TEST_F(OpenAiResponseTest, WithoutTokensToAnswerThePromptStandsAlone) {
  const CompletionRequest request = parse_completion_request(
      R"({"model":"small","prompt":[97,98],"echo":true,"logprobs":0,"max_tokens":0})", api_.context);
  RequestOutput only = output("", {}, 0, FinishReason::length);
  only.prompt_logprobs = {{98, -2.0f, {}}};
  const Json body = respond(request, {only});
  EXPECT_EQ(body["choices"][0], Json::parse(R"({"index":0,"text":"ab","finish_reason":"length",
      "stop_reason":null,"logprobs":{"tokens":["a","b"],"token_logprobs":[null,-2],"text_offset":[0,1],
      "top_logprobs":[null,{"b":-2}]}})"));
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  EXPECT_EQ(body["usage"]["total_tokens"], 2);
}

TEST_F(OpenAiResponseTest, ARefusedOrCancelledChoiceFailsTheResponse) {
  const CompletionRequest request = api_.completion("\"n\":2");
  const auto made = builder(request);
  test::add(*made, 0, output("a", {97}, 1, FinishReason::length));
  auto error =
      test::api_error_of([&] { test::add(*made, 1, output("", {}, 0, FinishReason::refused, "too long")); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status(), 400);
  EXPECT_STREQ(error->what(), "The engine refuses the request: too long");
  error = test::api_error_of([&] { test::add(*made, 1, output("", {}, 0, FinishReason::cancelled)); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status(), 503);
  error =
      test::api_error_of([&] { test::add(*made, 1, output("", {}, 0, FinishReason::error, "no token")); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status(), 500);
  EXPECT_STREQ(error->what(), "The request has failed: no token");
  EXPECT_FALSE(failure_of(output("", {}, 0)));
  EXPECT_FALSE(failure_of(output("", {}, 0, FinishReason::stop)));
}

}  // namespace
}  // namespace minfer
