// The fields that /v1/completions accepts, and the effect of the fields of both endpoints.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/request/completion_request.h"
#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OpenAiRequestTest : public ::testing::Test {
 protected:
  CompletionRequest prompt(const std::string& value) const {
    return parse_completion_request(R"({"model":"small","prompt":)" + value + "}", api_.context);
  }

  /// Expects a 400 for `param` with a message that contains `words`, for a body with those members.
  void expect_refused(const Dialect& dialect, const std::string& members, const std::string& param,
                      const std::string& words = {}) const {
    const std::string body = dialect.is_chat ? api_.chat_body(members) : api_.completion_body(members);
    expect_body_refused(dialect, body, param, words);
  }
  void expect_body_refused(const Dialect& dialect, const std::string& body, const std::string& param,
                           const std::string& words = {}) const {
    const auto error = test::api_error_of([&] { api_.parse(dialect, body); });
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->status(), 400) << body;
    EXPECT_EQ(error->type(), "invalid_request_error") << body;
    EXPECT_EQ(error->param(), param) << body << ": " << error->what();
    EXPECT_THAT(error->what(), HasSubstr(words)) << body;
  }
  void expect_refused(const std::string& members, const std::string& param,
                      const std::string& words = {}) const {
    expect_refused(kCompletionsDialect, members, param, words);
    expect_refused(kChatDialect, members, param, words);
  }

  test::TestApi api_;
};

TEST_F(OpenAiRequestTest, DefaultsAreOpenAis) {
  const CompletionRequest request = api_.completion();
  EXPECT_EQ(request.dialect, &kCompletionsDialect);
  EXPECT_EQ(request.model, "small");
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(api_.decode(request.prompts[0]), "hello");
  EXPECT_EQ(request.n, 1);
  EXPECT_EQ(request.num_choices(), 1);
  EXPECT_EQ(request.sampling.max_tokens, 16);
  EXPECT_EQ(request.sampling.temperature, 1.0f);
  EXPECT_EQ(request.sampling.top_p, 1.0f);
  EXPECT_EQ(request.sampling.logprobs, -1);
  EXPECT_FALSE(request.sampling.seed);
  EXPECT_FALSE(request.stream);
  EXPECT_FALSE(request.echo);
  EXPECT_NO_THROW(request.sampling.validate(api_.context.vocab_size));
}

TEST_F(OpenAiRequestTest, PromptsAreTextsOrIdsOrListsOfThese) {
  EXPECT_THAT(prompt("[1,2,3]").prompts, ElementsAre(ElementsAre(1, 2, 3)));
  EXPECT_THAT(prompt("[[1,2],[3.0]]").prompts, ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
  const CompletionRequest texts = prompt(R"(["hello",[7]," world"])");
  ASSERT_EQ(texts.prompts.size(), 3u);
  EXPECT_EQ(api_.decode(texts.prompts[0]), "hello");
  EXPECT_THAT(texts.prompts[1], ElementsAre(7));
  EXPECT_EQ(api_.decode(texts.prompts[2]), " world");
}

TEST_F(OpenAiRequestTest, PromptsOfOtherKindsAreRefusedByName) {
  const auto refused = [&](const std::string& value, const std::string& param) {
    expect_body_refused(kCompletionsDialect, R"({"model":"small","prompt":)" + value + "}", param);
  };
  refused("null", "prompt");
  refused("[]", "prompt");
  refused("7", "prompt");
  refused("{}", "prompt");
  refused("true", "prompt");
  refused("\"\"", "prompt");
  refused(R"(["hello",""])", "prompt[1]");
  refused(R"(["hello",7])", "prompt[1]");
  refused(R"([[1],[]])", "prompt[1]");
  refused(R"([[1],null])", "prompt[1]");
  refused(R"([1,"hello"])", "prompt[1]");
  refused(R"([[["a"]]])", "prompt[0]");
  expect_body_refused(kCompletionsDialect, R"({"model":"small"})", "prompt", "missing");
}

TEST_F(OpenAiRequestTest, SpecialTokensOfAPromptCount) {
  const TokenId end = prompt(R"("<|im_end|>")").prompts[0].at(0);
  EXPECT_TRUE(api_.tokenizer().is_control(end));
}

TEST_F(OpenAiRequestTest, AModelIsTheServersOwnOrOneThatItKnows) {
  EXPECT_EQ(parse_completion_request(R"({"model":"other","prompt":"a"})", api_.context).model, "other");
  for (const char* absent : {R"({"prompt":"a"})", R"({"prompt":"a","model":null})"})
    EXPECT_EQ(parse_completion_request(absent, api_.context).model, "small");
  for (const char* model : {"7", "[]"}) {
    expect_body_refused(kCompletionsDialect, std::string(R"({"prompt":"a","model":)") + model + "}", "model");
  }
  const auto error =
      test::api_error_of([&] { api_.parse(kChatDialect, R"({"model":"gpt-4o","messages":[]})"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status(), 404);
  EXPECT_EQ(error->code(), "model_not_found");
  EXPECT_THAT(error->what(), HasSubstr("`gpt-4o` does not exist. This server has `small`, `other`"));
}

TEST_F(OpenAiRequestTest, AServerMayTakeAnyModelOrNone) {
  api_.context.any_model_name = true;
  EXPECT_EQ(parse_completion_request(R"({"model":"gpt-9","prompt":"a"})", api_.context).model, "gpt-9");
  EXPECT_EQ(parse_completion_request(R"({"prompt":"a"})", api_.context).model, "small");
  expect_body_refused(kCompletionsDialect, R"({"prompt":"a","model":7})", "model");
}

TEST_F(OpenAiRequestTest, FieldsBecomeSamplingParameters) {
  const std::string members =
      R"("temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"repetition_penalty":1.5,
         "presence_penalty":-0.5,"frequency_penalty":0.75,"logit_bias":{"3":-100,"5":1.5},"seed":-3,
         "stop":["a","bc"],"stop_token_ids":[4],"include_stop_str_in_output":true,"ignore_eos":true,
         "skip_special_tokens":false,"max_tokens":9,"min_tokens":2)";
  for (const CompletionRequest& request : {api_.completion(members), api_.chat(members)}) {
    const SamplingParams& sampling = request.sampling;
    EXPECT_EQ(sampling.temperature, 0.5f);
    EXPECT_EQ(sampling.top_p, 0.25f);
    EXPECT_EQ(sampling.top_k, 7);
    EXPECT_EQ(sampling.min_p, 0.125f);
    EXPECT_EQ(sampling.repetition_penalty, 1.5f);
    EXPECT_EQ(sampling.presence_penalty, -0.5f);
    EXPECT_EQ(sampling.frequency_penalty, 0.75f);
    ASSERT_EQ(sampling.logit_bias.size(), 2u);
    EXPECT_EQ(sampling.logit_bias[0].token, 3);
    EXPECT_EQ(sampling.logit_bias[0].bias, -100.0f);
    EXPECT_EQ(sampling.logit_bias[1].token, 5);
    EXPECT_EQ(sampling.seed, static_cast<uint64_t>(-3));
    EXPECT_THAT(sampling.stop, ElementsAre("a", "bc"));
    EXPECT_THAT(sampling.stop_token_ids, ElementsAre(4));
    EXPECT_TRUE(sampling.include_stop_in_output);
    EXPECT_TRUE(sampling.ignore_eos);
    EXPECT_FALSE(sampling.skip_special_tokens);
    EXPECT_EQ(sampling.max_tokens, 9);
    EXPECT_EQ(sampling.min_tokens, 2);
    EXPECT_NO_THROW(sampling.validate(api_.context.vocab_size));
  }
}

TEST_F(OpenAiRequestTest, ValuesThatSwitchAFilterOffDoSo) {
  EXPECT_EQ(api_.completion("\"top_k\":-1").sampling.top_k, 0);
  EXPECT_EQ(api_.completion("\"top_k\":1000000").sampling.top_k, 0);
  EXPECT_EQ(api_.completion("\"temperature\":1e-7").sampling.temperature, 0.0f);
  EXPECT_THAT(api_.completion("\"stop\":\"x\"").sampling.stop, ElementsAre("x"));
  EXPECT_TRUE(api_.completion("\"stop\":[]").sampling.stop.empty());
}

TEST_F(OpenAiRequestTest, StopStringsAreFewAndNotEmpty) {
  std::string many = "\"a\"";
  for (int i = 1; i < 16; ++i)
    many += ",\"a\"";
  EXPECT_EQ(api_.completion("\"stop\":[" + many + "]").sampling.stop.size(), 16u);
  expect_refused("\"stop\":[" + many + ",\"a\"]", "stop", "17 entries, expected at most 16");
  expect_refused("\"stop\":\"\"", "stop", "empty");
  expect_refused("\"stop\":[\"a\",\"\"]", "stop[1]", "empty");
  expect_refused("\"stop\":[1]", "stop[0]");
  expect_refused("\"stop\":7", "stop");
  expect_refused(fmt::format("\"stop\":\"{:x>4097}\"", ""), "stop", "4096");
}

TEST_F(OpenAiRequestTest, LogitBiasNamesTokens) {
  for (const char* key : {"", "x", "-1", "01", "+1", "1.0", " 1", "1 ", "999999", "99999999999999999999"}) {
    expect_refused(std::string("\"logit_bias\":{\"") + key + "\":1}", "logit_bias", "token id");
  }
  expect_refused("\"logit_bias\":[]", "logit_bias");
  EXPECT_TRUE(api_.completion("\"logit_bias\":{}").sampling.logit_bias.empty());
}

TEST_F(OpenAiRequestTest, ChoicesOfAPromptHaveSeedsOfTheirOwn) {
  const CompletionRequest request = parse_completion_request(
      R"({"model":"small","prompt":[[1],[2]],"n":3,"seed":5,"priority":0})", api_.context);
  ASSERT_EQ(request.num_choices(), 6);
  for (int32_t choice = 0; choice < 6; ++choice) {
    const Request made = request.engine_request(choice, "id" + std::to_string(choice));
    EXPECT_EQ(made.id, "id" + std::to_string(choice));
    EXPECT_THAT(made.prompt, ElementsAre(1 + choice / 3));
    EXPECT_EQ(made.sampling.seed, static_cast<uint64_t>(5 + choice % 3));
  }
  EXPECT_FALSE(api_.completion("\"n\":2").engine_request(1, "x").sampling.seed);
}

TEST_F(OpenAiRequestTest, ChoicesAreLimitedInAll) {
  api_.context.limits.max_choices = 6;
  api_.context.limits.max_prompts = 4;
  EXPECT_EQ(
      parse_completion_request(R"({"model":"small","prompt":[[1],[2]],"n":3})", api_.context).num_choices(),
      6);
  expect_body_refused(kCompletionsDialect, R"({"model":"small","prompt":[[1],[2],[3]],"n":3})", "n",
                      "at most 6");
  expect_body_refused(kCompletionsDialect, R"({"model":"small","prompt":["a","a","a","a","a"]})", "prompt",
                      "at most 4");
}

TEST_F(OpenAiRequestTest, PromptAndAnswerFitTheContext) {
  const auto body = [](int prompt_tokens, const std::string& members) {
    std::string ids = "1";
    for (int i = 1; i < prompt_tokens; ++i)
      ids += ",1";
    return R"({"model":"small","prompt":[)" + ids + "]" + members + "}";
  };
  const auto parse = [&](int prompt_tokens, const std::string& members = {}) {
    return parse_completion_request(body(prompt_tokens, members), api_.context);
  };
  EXPECT_EQ(parse(984).sampling.max_tokens, 16);
  EXPECT_EQ(parse(990).sampling.max_tokens, 10);
  EXPECT_EQ(parse(999).sampling.max_tokens, 1);
  EXPECT_EQ(parse(990, ",\"max_tokens\":10").sampling.max_tokens, 10);

  for (const auto& [num_tokens, members] :
       {std::pair<int, std::string>{1000, ""}, {5000, ",\"max_tokens\":1"}, {990, ",\"max_tokens\":11"}}) {
    const auto error = test::api_error_of([&, count = num_tokens, &more = members] { parse(count, more); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status(), 400);
    EXPECT_EQ(error->param(), "prompt");
    EXPECT_EQ(error->code(), "context_length_exceeded");
    EXPECT_THAT(error->what(), HasSubstr("This model's maximum context length is 1000 tokens. However, "));
    EXPECT_THAT(error->what(), HasSubstr(std::to_string(num_tokens)));
  }
  const auto error = test::api_error_of([&] { parse(990, ",\"max_tokens\":11"); });
  EXPECT_THAT(error->what(),
              HasSubstr("you requested 1001 tokens (990 in the prompt, 11 in the completion)"));
}

TEST_F(OpenAiRequestTest, AChatsAnswerMayTakeTheRestOfTheContext) {
  const CompletionRequest request = api_.chat();
  EXPECT_EQ(request.sampling.max_tokens, 1000 - static_cast<int32_t>(request.prompts[0].size()));
  EXPECT_EQ(api_.chat("\"max_tokens\":5").sampling.max_tokens, 5);
  EXPECT_EQ(api_.chat("\"max_completion_tokens\":6").sampling.max_tokens, 6);
  EXPECT_EQ(api_.chat("\"max_completion_tokens\":6,\"max_tokens\":6").sampling.max_tokens, 6);
  expect_refused(kChatDialect, "\"max_completion_tokens\":6,\"max_tokens\":7", "max_tokens", "is 6");
  expect_refused(kChatDialect, "\"max_tokens\":1000", "messages", "maximum context length is 1000");
}

TEST_F(OpenAiRequestTest, MaxTokensHasTwoNames) {
  EXPECT_EQ(api_.completion("\"max_completion_tokens\":6").sampling.max_tokens, 6);
  EXPECT_EQ(api_.completion("\"max_completion_tokens\":0,\"echo\":true").sampling.max_tokens, 0);
  expect_refused("\"max_completion_tokens\":0", "max_completion_tokens", "from 1");
  expect_refused("\"max_completion_tokens\":6,\"max_tokens\":7", "max_tokens", "is 6");
}

TEST_F(OpenAiRequestTest, MinTokensStayBelowMaxTokens) {
  expect_refused(kCompletionsDialect, "\"min_tokens\":17", "min_tokens", "max_tokens = 16");
  expect_refused("\"min_tokens\":3,\"max_tokens\":2", "min_tokens", "max_tokens = 2");
}

TEST_F(OpenAiRequestTest, StreamingIsOffOrHasOptions) {
  const CompletionRequest request = api_.chat(
      R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true,"include_obfuscation":false},
         "stream_interval":9)");
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_TRUE(request.continuous_usage);
  EXPECT_EQ(request.sampling.stream_interval, 9);
  EXPECT_EQ(api_.chat("\"stream\":true").sampling.stream_interval, 0);
  EXPECT_GT(api_.chat().sampling.stream_interval, 1);

  expect_refused("\"stream_options\":{\"include_usage\":true}", "stream_options", "stream is true");
  expect_refused("\"stream_interval\":9", "stream_interval", "stream is true");
  EXPECT_FALSE(api_.chat().timings);
  EXPECT_TRUE(api_.chat("\"timings_per_token\":true").timings);
  expect_refused("\"timings_per_token\":1", "timings_per_token");
  expect_refused("\"stream\":1", "stream");
  expect_refused("\"stream\":true,\"stream_options\":7", "stream_options");
  expect_refused("\"stream\":true,\"stream_options\":{\"include_obfuscation\":true}",
                 "stream_options.include_obfuscation");
  expect_refused("\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true}",
                 "stream_options.continuous_usage_stats");
}

TEST_F(OpenAiRequestTest, LogprobsAreACountForCompletionsAndAFlagForChats) {
  EXPECT_EQ(api_.completion("\"logprobs\":0").sampling.logprobs, 0);
  EXPECT_EQ(api_.completion("\"logprobs\":5").sampling.logprobs, 5);
  EXPECT_EQ(api_.chat("\"logprobs\":true").sampling.logprobs, 0);
  EXPECT_EQ(api_.chat("\"logprobs\":true,\"top_logprobs\":4").sampling.logprobs, 4);
  EXPECT_EQ(api_.chat("\"logprobs\":false,\"top_logprobs\":0").sampling.logprobs, -1);
  expect_refused(kCompletionsDialect, "\"logprobs\":true", "logprobs");
  expect_refused(kChatDialect, "\"logprobs\":5", "logprobs");
  expect_refused(kChatDialect, "\"top_logprobs\":5", "top_logprobs", "logprobs is true");
}

TEST_F(OpenAiRequestTest, EchoKeepsThePromptsText) {
  const CompletionRequest request = parse_completion_request(
      R"({"model":"small","echo":true,"prompt":["h\u00e9",[97,98]],"n":2})", api_.context);
  EXPECT_TRUE(request.echo);
  EXPECT_THAT(request.prompt_texts, ElementsAre("h\xC3\xA9", "ab"));
  EXPECT_EQ(request.prompt_text_of(1), "h\xC3\xA9");
  EXPECT_EQ(request.prompt_text_of(2), "ab");
}

TEST_F(OpenAiRequestTest, EchoWithLogprobsScoresThePrompt) {
  EXPECT_EQ(api_.completion("\"echo\":true").sampling.prompt_logprobs, -1);
  EXPECT_EQ(api_.completion("\"logprobs\":3").sampling.prompt_logprobs, -1);
  const CompletionRequest request = api_.completion("\"echo\":true,\"logprobs\":3,\"max_tokens\":0");
  EXPECT_EQ(request.sampling.prompt_logprobs, 3);
  EXPECT_EQ(request.sampling.max_tokens, 0);
  expect_refused(kCompletionsDialect, "\"max_tokens\":0", "max_tokens", "from 1");
}

TEST_F(OpenAiRequestTest, APromptAsLongAsTheContextCanBeEchoed) {
  const auto of_length = [&](int32_t num_tokens, int32_t max_tokens) {
    std::string body = R"({"model":"small","echo":true,"logprobs":1,"prompt":[97)";
    for (int32_t i = 1; i < num_tokens; ++i)
      body += ",97";
    body += fmt::format("],\"max_tokens\":{}}}", max_tokens);
    return test::api_error_of([&] { parse_completion_request(body, api_.context); });
  };
  EXPECT_FALSE(of_length(1000, 0));
  EXPECT_TRUE(of_length(1001, 0));
  EXPECT_FALSE(of_length(999, 1));
  EXPECT_TRUE(of_length(1000, 1));
}

TEST_F(OpenAiRequestTest, PriorityNeedsAServerThatKnowsIt) {
  EXPECT_EQ(api_.completion("\"priority\":0").priority, 0);
  expect_refused("\"priority\":1", "priority", "order of arrival");
  api_.context.schedules_by_priority = true;
  EXPECT_EQ(api_.chat("\"priority\":-7").engine_request(0, "x").priority, -7);
}

TEST_F(OpenAiRequestTest, AStrictServerRefusesUnknownFieldsInOpenAisWords) {
  api_.context.refuses_unknown_fields = true;
  expect_refused("\"temprature\":1", "temprature", "Unrecognized request argument supplied: temprature");
  expect_refused("\"temprature\":null", "temprature", "Unrecognized request argument supplied: temprature");
  expect_refused("\"\":1", "", "Unrecognized request argument supplied: ");
  expect_refused(kCompletionsDialect, "\"messages\":[]", "messages", "Unrecognized");
  expect_refused(kChatDialect, "\"prompt\":\"x\"", "prompt", "Unrecognized");
  expect_refused("\"stream\":true,\"stream_options\":{\"x\":1}", "stream_options.x", "Unrecognized");
  expect_refused("\"response_format\":{\"type\":\"text\",\"schema\":{}}", "response_format.schema",
                 "Unrecognized");
}

TEST_F(OpenAiRequestTest, UnknownFieldsAreIgnoredAndNamed) {
  const std::string members =
      R"("temprature":1,"a b,\"c\"\n":{"x":[1]},"":0,"nothing":null,"stream":true,"stream_options":{"x":1},
         "response_format":{"type":"text","schema":{}})";
  for (const CompletionRequest& request : {api_.completion(members), api_.chat(members)}) {
    EXPECT_THAT(request.ignored_fields,
                ElementsAre("stream_options.x", "response_format.schema", "temprature", "a?b??c??", "\"\""));
  }
  EXPECT_THAT(api_.completion("\"messages\":[7]").ignored_fields, ElementsAre("messages"));
  EXPECT_THAT(api_.chat("\"prompt\":7").ignored_fields, ElementsAre("prompt"));
  EXPECT_TRUE(api_.completion().ignored_fields.empty());
}

TEST_F(OpenAiRequestTest, NamesOfIgnoredFieldsAreFewAndShort) {
  std::string members = fmt::format("\"{:x>1000}\":1", "");
  for (int i = 1; i < 40; ++i)
    members += fmt::format(",\"f{}\":1", i);
  const std::vector<std::string> names = api_.completion(members).ignored_fields;
  ASSERT_EQ(names.size(), 17u);
  EXPECT_EQ(names[0], fmt::format("{:x>64}...", ""));
  EXPECT_EQ(names[15], "f15");
  EXPECT_EQ(names[16], "...");
}

TEST_F(OpenAiRequestTest, WhatWouldChangeTheAnswerIsRefusedByName) {
  for (const char* name : {"audio", "functions", "function_call", "web_search_options", "documents",
                           "prompt_embeds", "truncate_prompt_tokens", "bad_words", "allowed_token_ids",
                           "use_beam_search", "logits_processors", "images"}) {
    expect_refused(fmt::format("\"{}\":{{}}", name), name, "not supported");
    for (const char* off : {"null", "false", "[]"})
      EXPECT_TRUE(api_.chat(fmt::format("\"{}\":{}", name, off)).ignored_fields.empty()) << name << off;
  }
  expect_refused("\"best_of\":3,\"n\":2", "best_of", "only n = 2");
  EXPECT_EQ(api_.completion("\"best_of\":2,\"n\":2").n, 2);
  expect_refused(kChatDialect, "\"suffix\":\"x\"", "suffix", "not supported");
  expect_refused(kCompletionsDialect, "\"suffix\":\"x\"", "suffix", "no tokens for filling a gap");
  expect_refused("\"response_format\":\"text\"", "response_format");
  expect_refused("\"response_format\":{}", "response_format.type", "missing");
  expect_refused("\"modalities\":[\"text\",\"audio\"]", "modalities");
  expect_refused(kChatDialect, "\"echo\":true", "echo", "do not repeat");
  EXPECT_TRUE(api_.chat("\"echo\":false,\"modalities\":[\"text\"]").ignored_fields.empty());
}

TEST_F(OpenAiRequestTest, AdviceIsTakenWhateverItSays) {
  for (const bool strict : {false, true}) {
    api_.context.refuses_unknown_fields = strict;
    for (const char* name :
         {"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "store", "metadata",
          "prediction", "reasoning_effort", "verbosity", "parallel_tool_calls", "service_tier"}) {
      for (const char* value : {"\"flex\"", "true", "false", "7", "{\"a\":{\"b\":[1]}}", "[]", "null"}) {
        const std::string member = fmt::format("\"{}\":{}", name, value);
        EXPECT_TRUE(api_.completion(member).ignored_fields.empty()) << member;
        EXPECT_TRUE(api_.chat(member).ignored_fields.empty()) << member;
      }
    }
  }
  EXPECT_TRUE(api_.completion("\"service_tier\":\"flex\"").service_tier);
  EXPECT_FALSE(api_.completion("\"service_tier\":7").service_tier);
  EXPECT_FALSE(api_.completion().service_tier);
}

TEST_F(OpenAiRequestTest, ACacheSaltGoesToTheEngine) {
  for (const Dialect* dialect : {&kCompletionsDialect, &kChatDialect}) {
    const auto salt = [&](const std::string& members) {
      const std::string body = dialect->is_chat ? api_.chat_body(members) : api_.completion_body(members);
      return api_.parse(*dialect, body).engine_request(0, "id").cache_salt;
    };
    EXPECT_EQ(salt(""), "");
    EXPECT_EQ(salt("\"cache_salt\":null"), "");
    EXPECT_EQ(salt("\"cache_salt\":\"tenant\""), "tenant");
    EXPECT_EQ(salt(fmt::format("\"cache_salt\":\"{}\"", std::string(kMaxCacheSaltBytes, 's'))).size(),
              kMaxCacheSaltBytes);
  }
  expect_refused("\"cache_salt\":\"\"", "cache_salt", "expected 1 to 256");
  expect_refused(fmt::format("\"cache_salt\":\"{}\"", std::string(kMaxCacheSaltBytes + 1, 's')),
                 "cache_salt");
  expect_refused("\"cache_salt\":7", "cache_salt");
}

TEST_F(OpenAiRequestTest, NullIsAbsentEverywhere) {
  const std::string members =
      R"("n":null,"stop":null,"stream":null,"stream_options":null,"logprobs":null,"logit_bias":null,"user":null,
         "response_format":null,"metadata":null,"store":null,"service_tier":null,"stop_token_ids":null,
         "ignore_eos":null,"add_special_tokens":null)";
  EXPECT_NO_THROW(api_.completion(members + R"(,"suffix":null,"echo":null,"best_of":null)"));
  EXPECT_NO_THROW(api_.completion(members + R"(,"suffix":"")"));
  EXPECT_NO_THROW(api_.chat(members + R"(,"tools":null,"tool_choice":null,"parallel_tool_calls":null,
      "chat_template_kwargs":null,"add_generation_prompt":null,"continue_final_message":null,
      "chat_template":null,"modalities":null,"top_logprobs":null)"));
}

}  // namespace
}  // namespace minfer
