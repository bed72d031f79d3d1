// POST /infill: prompts for models with gap tokens, and the form of answers.
#include "server/dialects/llama_server/infill.h"

#include <optional>
#include <random>

#include <gmock/gmock.h>

#include "tests/support/server/answer_pieces.h"
#include "tests/support/server/api_requests.h"
#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::output;
using testing::HasSubstr;

class InfillTest : public testing::Test {
 protected:
  void use(const Vocabulary& vocabulary) { api_.emplace(vocabulary); }
  CompletionRequest parse(const std::string& members) {
    return parse_infill_request('{' + members + '}', api_->context);
  }
  std::string prompt(const std::string& members) { return api_->decode(parse(members).prompts.at(0)); }
  std::optional<ApiError> error(const std::string& members) {
    return test::api_error_of([&] { parse(members); });
  }

  std::optional<test::TestApi> api_{std::in_place};  ///< its model has no gap tokens unless set
};

TEST_F(InfillTest, TheTextsStandAroundTheGap) {
  use(test::gap_vocabulary(false));
  EXPECT_EQ(prompt(R"("input_prefix":"hello","input_suffix":" world","prompt":null)"),
            "<|fim_prefix|>hello<|fim_suffix|> world<|fim_middle|>");
  EXPECT_EQ(prompt(R"("input_prefix":"a","input_suffix":"c","prompt":"b","input_extra":[])"),
            "<|fim_prefix|>ab<|fim_suffix|>c<|fim_middle|>");
}

TEST_F(InfillTest, TokensInTheTextsAreText) {
  use(test::gap_vocabulary(true));
  const std::string members =
      R"("input_prefix":"<|fim_suffix|>","input_suffix":"<|fim_middle|>","input_extra":[{"filename":"<|file_sep|>","text":""}])";
  const std::vector<TokenId> ids = parse(members).prompts.at(0);
  const auto is_control = [&](TokenId id) { return api_->tokenizer().is_control(id); };
  EXPECT_EQ(std::ranges::count_if(ids, is_control), 6) << "those of the form: 3 and 3";
}

TEST_F(InfillTest, OtherFilesComeFirst) {
  use(test::gap_vocabulary(true));
  EXPECT_EQ(
      prompt(
          R"("input_prefix":"p","input_suffix":"s","input_extra":[{"filename":"a.c","text":"int a;\n"},{"text":"b"}])"),
      "<|repo_name|>myproject\n<|file_sep|>a.c\nint a;\n<|file_sep|>tmp\nb<|file_sep|>filename\n"
      "<|fim_prefix|>p<|fim_suffix|>s<|fim_middle|>");
}

TEST_F(InfillTest, WhatTheVocabularyLacksIsRefused) {
  const std::string gap = R"("input_prefix":"p","input_suffix":"s")";
  const auto no_gap = error(gap);
  ASSERT_TRUE(no_gap);
  EXPECT_EQ(no_gap->status(), 400);
  EXPECT_EQ(no_gap->param(), "input_prefix");
  EXPECT_THAT(no_gap->what(), HasSubstr("no tokens for filling a gap"));
  use(test::gap_vocabulary(false));
  const auto no_files = error(gap + R"(,"input_extra":[{"text":"b"}])");
  ASSERT_TRUE(no_files);
  EXPECT_EQ(no_files->param(), "input_extra");
  EXPECT_THAT(no_files->what(), HasSubstr("<|file_sep|>"));
}

TEST_F(InfillTest, FieldsAreChecked) {
  use(test::gap_vocabulary(true));
  const std::string gap = R"("input_prefix":"p","input_suffix":"s")";
  const std::pair<std::string, std::string> wrong[] = {
      {R"("input_prefix":"p")", "input_suffix"},
      {R"("input_suffix":"s")", "input_prefix"},
      {gap + R"(,"prompt":[1])", "prompt"},
      {gap + R"(,"n_predict":0)", "n_predict"},
      {gap + R"(,"n_predict":-2)", "n_predict"},
      {gap + R"(,"min_p":2)", "min_p"},
      {gap + R"(,"input_extra":{})", "input_extra"},
      {gap + R"(,"input_extra":["a"])", "input_extra[0]"},
      {gap + R"(,"input_extra":[{"filename":"a"}])", "input_extra[0].text"},
      {gap + R"(,"input_extra":[{"text":"","filename":1}])", "input_extra[0].filename"},
  };
  for (const auto& [members, param] : wrong) {
    const auto found = error(members);
    ASSERT_TRUE(found) << members;
    EXPECT_EQ(found->status(), 400) << members;
    EXPECT_EQ(found->param(), param) << members;
  }
  const auto long_prompt = error(R"("input_suffix":"s","input_prefix":")" + std::string(1001, 'p') + '"');
  ASSERT_TRUE(long_prompt);
  EXPECT_EQ(long_prompt->code(), "context_length_exceeded");
}

TEST_F(InfillTest, SamplingAndLengthAreTheRequests) {
  use(test::gap_vocabulary(false));
  const std::string gap = R"("input_prefix":"p","input_suffix":"s")";
  const CompletionRequest plain = parse(gap);
  const int32_t left = 1000 - static_cast<int32_t>(plain.prompts[0].size());
  EXPECT_EQ(plain.dialect, &kInfillDialect);
  EXPECT_EQ(plain.sampling.max_tokens, left);
  EXPECT_EQ(parse(gap + R"(,"n_predict":-1)").sampling.max_tokens, left);
  EXPECT_EQ(parse(gap + R"(,"n_predict":5000)").sampling.max_tokens, left);
  const CompletionRequest made = parse(
      gap +
      R"(,"n_predict":7,"temperature":0.5,"top_k":3,"top_p":0.9,"min_p":0.1,"seed":4,"stop":["x"],"stream":true,"samplers":["top_k"])");
  EXPECT_EQ(made.sampling.max_tokens, 7);
  EXPECT_FLOAT_EQ(made.sampling.temperature, 0.5f);
  EXPECT_EQ(made.sampling.top_k, 3);
  EXPECT_FLOAT_EQ(made.sampling.top_p, 0.9f);
  EXPECT_FLOAT_EQ(made.sampling.min_p, 0.1f);
  EXPECT_EQ(made.sampling.seed, 4u);
  EXPECT_THAT(made.sampling.stop, testing::ElementsAre("x"));
  EXPECT_TRUE(made.stream);
  EXPECT_THAT(made.ignored_fields, testing::ElementsAre("samplers"));
  EXPECT_FALSE(parse(gap + R"(,"seed":-1)").sampling.seed);
  api_->context.limits.max_answer_bytes = 600;  // 100 tokens
  EXPECT_EQ(parse(gap).sampling.max_tokens, 100) << "no number was asked for";
}

TEST_F(InfillTest, AnswersHaveTheServersForm) {
  use(test::gap_vocabulary(false));
  const CompletionRequest request = parse(R"("input_prefix":"p","input_suffix":"s")");
  const auto prompt_tokens = request.prompts[0].size();
  struct Case {
    FinishReason finish;
    std::string detail;
    std::string type;
  };
  std::mt19937 random(7);
  for (const auto& [finish, detail, type] :
       {Case{FinishReason::stop, "", "eos"}, Case{FinishReason::length, "", "limit"},
        Case{FinishReason::stop, "\"!\"", "word"}}) {
    const std::string text = "some \"text\"\n";
    const std::vector<RequestOutput> outputs = test::random_outputs(text, random, finish, detail);
    Json expected{{"content", text},
                  {"stop", true},
                  {"model", "small"},
                  {"tokens_predicted", text.size()},
                  {"tokens_evaluated", prompt_tokens},
                  {"stop_type", type},
                  {"stopping_word", detail}};
    const auto whole = request.dialect->answer(request, {"id", 1}, api_->context, false);
    EXPECT_EQ(Json::parse(test::body_of(*whole, outputs)), expected);
    const auto stream = request.dialect->answer(request, {"id", 1}, api_->context, true);
    const std::vector<std::string> events = test::split_events(test::stream_of(*stream, outputs));
    std::string joined;
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      const Json event = Json::parse(events[i]);
      EXPECT_EQ(event, (Json{{"content", event.at("content")}, {"stop", false}}));
      joined += event["content"].get<std::string>();
    }
    EXPECT_EQ(joined, text);
    expected["content"] = "";
    EXPECT_EQ(Json::parse(events.back()), expected);
  }
}

TEST_F(InfillTest, TimingsComeIfAskedFor) {
  use(test::gap_vocabulary(false));
  const CompletionRequest request =
      parse(R"("input_prefix":"p","input_suffix":"s","timings_per_token":true)");
  const std::vector<RequestOutput> outputs{test::with_times(output("ab", {1, 2}, 2, FinishReason::stop), 4)};
  const auto whole = request.dialect->answer(request, {"id", 1}, api_->context, false);
  const Json timings = Json::parse(test::body_of(*whole, outputs))["timings"];
  EXPECT_EQ(timings["predicted_per_token_ms"], 2);
  const auto stream = request.dialect->answer(request, {"id", 1}, api_->context, true);
  EXPECT_EQ(Json::parse(test::split_events(test::stream_of(*stream, outputs)).back())["timings"], timings);
}

TEST_F(InfillTest, AnEmptyAnswerAndAFailureAreAnswersToo) {
  use(test::gap_vocabulary(false));
  const CompletionRequest request = parse(R"("input_prefix":"p","input_suffix":"s")");
  const std::vector<RequestOutput> nothing{output("", {0}, 1, FinishReason::stop)};
  const auto whole = request.dialect->answer(request, {"id", 1}, api_->context, false);
  EXPECT_EQ(Json::parse(test::body_of(*whole, nothing))["content"], "");
  const auto stream = request.dialect->answer(request, {"id", 1}, api_->context, true);
  EXPECT_EQ(test::split_events(test::stream_of(*stream, nothing)).size(), 1u);
  const auto failing = request.dialect->answer(request, {"id", 1}, api_->context, true);
  const std::vector<RequestOutput> failed{output("", {}, 0, FinishReason::error, "broken")};
  const auto events = test::split_events(test::stream_of(*failing, failed));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(Json::parse(events[0])["error"]["type"], "server_error");
  EXPECT_TRUE(failing->finished());
}

TEST(InfillRouteTest, AModelThatKnowsNoGapsSaysSo) {
  test::TestServer server;
  RawClient client = server.connect();
  const auto answer = client.request("POST", "/infill", R"({"input_prefix":"a","input_suffix":"b"})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(Json::parse(answer.body)["error"]["param"], "input_prefix");
}

}  // namespace
}  // namespace minfer
