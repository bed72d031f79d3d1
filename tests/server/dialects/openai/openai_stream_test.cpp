// Streamed responses: the events against expectations written by hand, and against the whole response.
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/server/api_outputs.h"
#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::json;
using test::output;
using test::with_cached;
using test::with_logprobs;
using test::with_times;

constexpr const char* kChatHead =
    R"({"id":"cmpl-1","object":"chat.completion.chunk","created":1700000001,"model":"small",)"
    R"("system_fingerprint":"minfer-test","choices":[)";
constexpr const char* kTextHead =
    R"({"id":"cmpl-1","object":"text_completion","created":1700000001,"model":"small",)"
    R"("system_fingerprint":"minfer-test","choices":[)";

class OpenAiStreamTest : public ::testing::Test {
 protected:
  std::unique_ptr<AnswerWriter> writer(const CompletionRequest& request, bool streams = true) const {
    return request.dialect->answer(request, {"cmpl-1", 1700000001}, api_.context, streams);
  }
  static std::vector<std::string> append(const std::unique_ptr<AnswerWriter>& stream, int32_t choice,
                                         const RequestOutput& each) {
    std::string events;
    test::append(*stream, choice, each, events);
    return test::split_events(events);
  }
  static std::string chat(const std::string& rest) { return kChatHead + rest; }
  static std::string text(const std::string& rest) { return kTextHead + rest; }

  test::TestApi api_;
};

TEST_F(OpenAiStreamTest, AChat) {
  const CompletionRequest request = api_.chat("\"stream\":true");
  const auto stream = writer(request);
  EXPECT_THAT(
      append(stream, 0, output("h\"", {104, 34}, 2)),
      ElementsAre(chat(R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
                       R"("finish_reason":null}]})"),
                  chat(R"({"index":0,"delta":{"content":"h\""},"logprobs":null,"finish_reason":null}]})")));
  EXPECT_THAT(
      append(stream, 0, output("", {195}, 3)),
      ElementsAre(chat(R"({"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":null}]})")));
  EXPECT_FALSE(stream->finished());
  EXPECT_THAT(append(stream, 0, output("\xC3\xA9", {169}, 4, FinishReason::stop, "x")),
              ElementsAre(chat(R"({"index":0,"delta":{"content":"é"},"logprobs":null,"finish_reason":"stop",)"
                               R"("stop_reason":"x"}]})"),
                          "[DONE]"));
  EXPECT_TRUE(stream->finished());
  EXPECT_TRUE(append(stream, 0, output("late", {1}, 5)).empty());
}

TEST_F(OpenAiStreamTest, ACompletionWithUsage) {
  const CompletionRequest request =
      api_.completion(R"("stream":true,"echo":true,"stream_options":{"include_usage":true})");
  const auto stream = writer(request);
  EXPECT_THAT(append(stream, 0, with_cached(output("a", {97}, 1), 1)),
              ElementsAre(text(
                  R"({"index":0,"text":"helloa","logprobs":null,"finish_reason":null}],"usage":null})")));
  EXPECT_THAT(
      append(stream, 0, with_cached(output("b", {98}, 2, FinishReason::length), 1)),
      ElementsAre(
          text(R"({"index":0,"text":"b","logprobs":null,"finish_reason":"length","stop_reason":null}],)"
               R"("usage":null})"),
          text(R"(],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,)"
               R"("prompt_tokens_details":{"cached_tokens":1}}})"),
          "[DONE]"));
}

TEST_F(OpenAiStreamTest, TheUsageSoFarIsOfTheChoice) {
  const CompletionRequest request = api_.completion(
      R"("n":2,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})");
  const auto stream = writer(request);
  append(stream, 0, output("a", {97}, 1));
  const std::vector<std::string> events = append(stream, 1, output("bc", {98, 99}, 2));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(Json::parse(events[0])["usage"],
            Json::parse(R"({"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,
                            "prompt_tokens_details":{"cached_tokens":0}})"));
  append(stream, 0, output("", {}, 1, FinishReason::length));
  const std::vector<std::string> last = append(stream, 1, output("", {}, 2, FinishReason::length));
  ASSERT_EQ(last.size(), 3u);
  EXPECT_EQ(Json::parse(last[1])["usage"]["completion_tokens"], 3);
  EXPECT_EQ(Json::parse(last[1])["usage"]["prompt_tokens"], 1);
}

TEST_F(OpenAiStreamTest, TimingsComeWithEveryEventIfAskedFor) {
  const CompletionRequest request = api_.completion(
      R"("n":2,"stream":true,"timings_per_token":true,"stream_options":{"include_usage":true})");
  const auto stream = writer(request);
  const Json first = Json::parse(append(stream, 0, with_times(output("a", {97}, 1), 0)).at(0));
  EXPECT_EQ(first["usage"], nullptr);
  EXPECT_EQ(
      first["timings"],
      Json::parse(R"({"cache_n":0,"prompt_n":1,"prompt_ms":20,"prompt_per_token_ms":20,"prompt_per_second":50,
                            "predicted_n":1,"predicted_ms":0,"predicted_per_token_ms":0,"predicted_per_second":0})"));
  append(stream, 1, with_times(output("bcd", {98, 99, 100}, 3, FinishReason::length), 6, {1, 4, 2}));
  const std::vector<std::string> last =
      append(stream, 0, with_times(output("b", {98}, 2, FinishReason::length), 8, {1, 3, 0}));
  ASSERT_EQ(last.size(), 3u);
  EXPECT_EQ(Json::parse(last[0])["timings"]["predicted_ms"], 8);
  EXPECT_EQ(Json::parse(last[0])["timings"]["draft_n"], 3);
  const Json whole = Json::parse(last[1])["timings"];
  EXPECT_EQ(whole["predicted_n"], 5) << "of both";
  EXPECT_EQ(whole["predicted_ms"], 8) << "of the slower one";
  EXPECT_EQ(whole["predicted_per_second"], 625);
  EXPECT_EQ(whole["draft_n"], 7);
  EXPECT_EQ(whole["draft_n_accepted"], 2);
}

TEST_F(OpenAiStreamTest, ChoicesHaveTheirRolesAndEndsAndShareOneLastEvent) {
  const CompletionRequest request = api_.chat("\"stream\":true,\"n\":2");
  const auto stream = writer(request);
  EXPECT_EQ(append(stream, 1, output("a", {97}, 1)).size(), 2u);
  EXPECT_EQ(append(stream, 0, output("a", {97}, 1, FinishReason::length)).size(), 2u);
  EXPECT_TRUE(append(stream, 0, output("late", {97}, 2)).empty());
  EXPECT_FALSE(stream->finished());
  EXPECT_EQ(append(stream, 1, output("b", {98}, 2, FinishReason::length)).back(), "[DONE]");
}

TEST_F(OpenAiStreamTest, AnErrorEndsTheStream) {
  const CompletionRequest request = api_.chat("\"stream\":true,\"n\":2");
  const auto stream = writer(request);
  append(stream, 0, output("a", {97}, 1));
  EXPECT_THAT(
      append(stream, 1, output("", {}, 0, FinishReason::cancelled)),
      ElementsAre(R"({"error":{"message":"The server has cancelled the request","type":"server_error",)"
                  R"("param":null,"code":null}})",
                  "[DONE]"));
  EXPECT_TRUE(stream->finished());
  EXPECT_TRUE(append(stream, 0, output("b", {98}, 2)).empty());
  std::string events;
  stream->append_error(ApiError(500, "again"), events);
  EXPECT_EQ(events, "");
}

TEST_F(OpenAiStreamTest, AnEchoedPromptComesWithTheFirstEvent) {
  const CompletionRequest request = parse_completion_request(
      R"({"model":"small","prompt":[97,98],"echo":true,"logprobs":0,"stream":true})", api_.context);
  const auto stream = writer(request);
  RequestOutput first = with_logprobs(output("c", {99}, 1), {{99, -1.0f, {}}});
  first.prompt_logprobs = {{98, -2.0f, {}}};
  const Json event = Json::parse(append(stream, 0, first).at(0));
  EXPECT_EQ(event["choices"][0]["text"], "abc");
  EXPECT_EQ(event["choices"][0]["logprobs"]["token_logprobs"], Json::parse("[null,-2,-1]"));
  EXPECT_EQ(event["choices"][0]["logprobs"]["text_offset"], Json::parse("[0,1,2]"));
  const Json next =
      Json::parse(append(stream, 0, with_logprobs(output("d", {100}, 2), {{100, -3.0f, {}}})).at(0));
  EXPECT_EQ(next["choices"][0]["logprobs"]["token_logprobs"], Json::parse("[-3]"));
  EXPECT_EQ(next["choices"][0]["logprobs"]["text_offset"], Json::parse("[3]"));
}

TEST_F(OpenAiStreamTest, AnEchoAloneIsOneEvent) {
  const CompletionRequest request = api_.completion(R"("echo":true,"max_tokens":0,"stream":true)");
  const auto stream = writer(request);
  EXPECT_THAT(append(stream, 0, output("", {}, 0, FinishReason::length)),
              ElementsAre(text(R"({"index":0,"text":"hello","logprobs":null,"finish_reason":"length",)"
                               R"("stop_reason":null}]})"),
                          "[DONE]"));
}

TEST_F(OpenAiStreamTest, AppendsBehindWhatIsThere) {
  const CompletionRequest request = api_.completion("\"stream\":true");
  const auto stream = writer(request);
  std::string events = "data: x\n\n";
  test::append(*stream, 0, output("a", {97}, 1), events);
  EXPECT_EQ(test::split_events(events).size(), 2u);
}

/// The result that a client makes of a stream: the answer's members, joined from the deltas.
Json join_events(const std::vector<std::string>& events, bool is_chat) {
  Json joined = Json::object();
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = Json::parse(events[i]);
    const Json& choice = event["choices"][0];
    joined["text"] =
        joined.value("text", "") + (is_chat ? choice["delta"]["content"] : choice["text"]).get<std::string>();
    if (!choice["logprobs"].is_null()) {
      for (const auto& [name, list] : choice["logprobs"].items()) {
        if (list.is_null()) continue;
        for (const Json& entry : list)
          joined["logprobs"][name].push_back(entry);
      }
    }
    joined["finish_reason"] = choice["finish_reason"];
  }
  return joined;
}

TEST_F(OpenAiStreamTest, DeltasOfAnySplitAddUpToTheWhole) {
  std::mt19937 random(1);
  const std::string bytes = "h\xC3\xA9llo \xE2\x82\xAC \"\\\n \xF0\x9F\x98\x80!";
  for (int round = 0; round < 200; ++round) {
    const bool is_chat = round % 2 == 0;
    const CompletionRequest request = is_chat
                                          ? api_.chat("\"stream\":true,\"logprobs\":true,\"top_logprobs\":1")
                                          : api_.completion("\"stream\":true,\"logprobs\":1");
    const auto stream = writer(request);
    const auto whole = writer(request, false);
    StreamDecoder decoder(api_.tokenizer());
    std::string events;
    RequestOutput next;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const auto token = static_cast<TokenId>(static_cast<uint8_t>(bytes[i]));
      next.text += decoder.push(token);
      next.tokens.push_back(token);
      next.logprobs.push_back({token, -0.25f * static_cast<float>(i), {{65, -0.5f}}});
      next.output_tokens = static_cast<int32_t>(i + 1);
      if (i + 1 == bytes.size()) next.finish = FinishReason::length;
      if (!next.finish && random() % 3 != 0) continue;
      test::append(*stream, 0, next, events);
      test::add(*whole, 0, next);
      next = {};
    }
    const Json body = Json::parse(test::whole_body(*whole));
    const Json& choice = body["choices"][0];
    const Json joined = join_events(test::split_events(events), is_chat);
    EXPECT_EQ(joined["text"], bytes);
    EXPECT_EQ(joined["text"], is_chat ? choice["message"]["content"] : choice["text"]);
    EXPECT_EQ(joined["finish_reason"], choice["finish_reason"]);
    Json logprobs = choice["logprobs"];
    logprobs.erase("refusal");
    EXPECT_EQ(joined["logprobs"], logprobs);
  }
}

}  // namespace
}  // namespace minfer
