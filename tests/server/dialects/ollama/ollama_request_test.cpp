// Requests to /api/chat and /api/generate: what the template is given, what the engine is asked for, what is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "server/api/request/dialect.h"
#include "server/dialects/ollama/ollama.h"
#include "tests/support/server/api_requests.h"
#include "tests/support/server/tag_parser.h"

namespace minfer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kHiMessage = R"("messages":[{"role":"user","content":"hi"}])";
constexpr const char* kOllamaTools =
    R"("tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}])";

class OllamaRequestTest : public testing::Test {
 protected:
  CompletionRequest chat(const std::string& members) {
    return test::with_grammar(parse_ollama_chat(fmt::format("{{{}}}", members), api_->context),
                              api_->context);
  }
  CompletionRequest generate(const std::string& members) {
    return test::with_grammar(parse_ollama_generate(fmt::format("{{{}}}", members), api_->context),
                              api_->context);
  }
  CompletionRequest options(const std::string& members) {
    return chat(fmt::format(R"({},"options":{{{}}})", kHiMessage, members));
  }
  /// The messages that the template is given.
  OrderedJson rendered(const std::string& messages) {
    chat(R"("messages":)" + messages);
    return api_->rendered["messages"];
  }
  template <class Parse>
  void expect_error(Parse&& parse, int status, const std::string& param, const std::string& words) {
    const auto error = test::api_error_of(parse);
    ASSERT_TRUE(error) << param << ' ' << words;
    EXPECT_EQ(error->status(), status) << error->what();
    EXPECT_EQ(error->param(), param) << error->what();
    EXPECT_THAT(error->what(), HasSubstr(words));
  }
  void refused_chat(const std::string& members, const std::string& param, const std::string& words) {
    expect_error([&] { chat(members); }, 400, param, words);
  }
  void refused_generate(const std::string& members, const std::string& param, const std::string& words) {
    expect_error([&] { generate(members); }, 400, param, words);
  }
  void refused_options(const std::string& members, const std::string& param, const std::string& words) {
    expect_error([&] { options(members); }, 400, "options." + param, words);
  }
  void hold_grammars() {
    const auto build = [this] {
      return std::make_shared<const TokenTrie>(api_->tokenizer(), api_->context.vocab_size);
    };
    grammars_.emplace(build, GrammarCache::Options{});
    api_->context.grammars = &*grammars_;
  }

  std::optional<test::TestApi> api_{std::in_place};
  std::optional<GrammarCache> grammars_;
};

TEST_F(OllamaRequestTest, AnswersAreStreamedUnlessToldOtherwise) {
  EXPECT_TRUE(chat(kHiMessage).stream);
  EXPECT_TRUE(generate(R"("prompt":"hi","stream":null)").stream);
  EXPECT_FALSE(chat(std::string(kHiMessage) + R"(,"stream":false)").stream);
  EXPECT_EQ(chat(kHiMessage).dialect, &kOllamaChatDialect);
  EXPECT_EQ(generate(R"("prompt":"hi")").dialect, &kOllamaGenerateDialect);
}

TEST_F(OllamaRequestTest, ANameMayHaveTheTag) {
  for (const char* name : {"small", "small:latest", "other:latest"})
    EXPECT_EQ(chat(fmt::format(R"({},"model":"{}")", kHiMessage, name)).model, name);
  for (const char* name : {"small:7b", "small:latest:latest", ":latest", "llama3", "latest"}) {
    expect_error([&] { chat(fmt::format(R"({},"model":"{}")", kHiMessage, name)); }, 404, "model",
                 "does not exist");
  }
  api_->context.served_model_names = {"small:7b"};
  EXPECT_EQ(chat(std::string(kHiMessage) + R"(,"model":"small:7b")").model, "small:7b");
  api_->context.any_model_name = true;
  EXPECT_EQ(chat(std::string(kHiMessage) + R"(,"model":"llama3")").model, "llama3");
  EXPECT_THROW(api_->chat(R"("top_k":1,"n":0)"), ApiError);
}

TEST_F(OllamaRequestTest, OptionsAreTheFieldsOfSampling) {
  const CompletionRequest made = options(
      R"("temperature":0.5,"top_k":3,"top_p":0.9,"min_p":0.1,"seed":4,"num_predict":7,"stop":["x","y"],
         "repeat_penalty":1.1,"presence_penalty":0.5,"frequency_penalty":0.25,"typical_p":1.0,"repeat_last_n":-1)");
  const SamplingParams& sampling = made.sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_k, 3);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.1f);
  EXPECT_EQ(sampling.seed, 4u);
  EXPECT_EQ(sampling.max_tokens, 7);
  EXPECT_THAT(sampling.stop, ElementsAre("x", "y"));
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(sampling.presence_penalty, 0.5f);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, 0.25f);
  EXPECT_TRUE(made.ignored_fields.empty());
  EXPECT_FALSE(options(R"("seed":-1)").sampling.seed);
  EXPECT_FALSE(chat(std::string(kHiMessage) + R"(,"options":null)").sampling.seed);
  const CompletionRequest off = options(R"("repeat_penalty":1.5,"presence_penalty":1,"repeat_last_n":0)");
  EXPECT_FLOAT_EQ(off.sampling.repetition_penalty, 1.0f);
  EXPECT_FLOAT_EQ(off.sampling.presence_penalty, 0.0f);
  EXPECT_EQ(options(R"("repeat_last_n":64)").sampling.repetition_penalty, 1.0f) << "of no effect";
}

TEST_F(OllamaRequestTest, LengthsAreBounds) {
  const CompletionRequest plain = chat(kHiMessage);
  const auto num_prompt = static_cast<int32_t>(plain.prompts[0].size());
  EXPECT_EQ(plain.sampling.max_tokens, 1000 - num_prompt);
  for (const char* all : {"-2", "-1", "0", "5000"})
    EXPECT_EQ(options(fmt::format(R"("num_predict":{})", all)).sampling.max_tokens, 1000 - num_prompt) << all;
  EXPECT_EQ(options(fmt::format(R"("num_ctx":{})", num_prompt + 5)).sampling.max_tokens, 5);
  EXPECT_EQ(options(fmt::format(R"("num_ctx":{},"num_predict":3)", num_prompt + 5)).sampling.max_tokens, 3);
  EXPECT_EQ(options(R"("num_ctx":131072)").sampling.max_tokens, 1000 - num_prompt);
  api_->context.limits.max_answer_bytes = 600;  // 100 tokens
  EXPECT_EQ(chat(kHiMessage).sampling.max_tokens, 100) << "no number was asked for";
  EXPECT_EQ(options(R"("num_predict":90)").sampling.max_tokens, 90);
  refused_options(fmt::format(R"("num_ctx":{})", num_prompt), "num_ctx", "but the prompt has");
  refused_chat(fmt::format(R"("messages":[{{"role":"user","content":"{:x>2000}"}}])", ""), "messages",
               "maximum");
}

TEST_F(OllamaRequestTest, OptionsAreChecked) {
  refused_options(R"("temperature":"hot")", "temperature", "a number");
  refused_options(R"("temperature":-1)", "temperature", "a number from 0 to 2");
  refused_options(R"("top_k":1.5)", "top_k", "an integer");
  refused_options(R"("num_predict":-3)", "num_predict", "an integer");
  refused_options(R"("num_ctx":0)", "num_ctx", "an integer");
  refused_options(R"("repeat_penalty":0)", "repeat_penalty", "a number");
  refused_options(R"("stop":[1])", "stop[0]", "a string");
  refused_options(R"("stop":[""])", "stop[0]", "end every answer");
  refused_options(R"("stop_token_ids":[-1])", "stop_token_ids[0]", "an integer");
  refused_options(R"("logit_bias":{"x":1})", "logit_bias", "options.logit_bias: \"x\"");
  refused_options(R"("logit_bias":{"1":"x"})", "logit_bias.1", "a number");
  refused_options(R"("typical_p":0.7)", "typical_p", "not supported");
  refused_options(R"("repeat_penalty":1.1,"repeat_last_n":64)", "repeat_last_n", "all tokens");
  refused_options(R"("presence_penalty":1,"repeat_last_n":64)", "repeat_last_n", "all tokens");
  for (const char* wrong : {"[]", "7", "\"hot\"", "true"})
    refused_chat(fmt::format(R"({},"options":{})", kHiMessage, wrong), "options", "an object");
}

TEST_F(OllamaRequestTest, FieldsWithoutEffectAreNamed) {
  EXPECT_THAT(options(R"("num_thread":8,"mirostat":1)").ignored_fields,
              ElementsAre("options.num_thread", "options.mirostat"));
  EXPECT_THAT(chat(std::string(kHiMessage) +
                   R"(,"keep_alive":"5m","truncate":true,"shift":false,"x":1,"temperature":0)")
                  .ignored_fields,
              ElementsAre("keep_alive", "truncate", "x", "temperature"));
  api_->context.refuses_unknown_fields = true;
  EXPECT_THAT(chat(std::string(kHiMessage) + R"(,"keep_alive":0)").ignored_fields, ElementsAre("keep_alive"));
  refused_options(R"("num_thread":8)", "num_thread", "Unrecognized");
  refused_chat(std::string(kHiMessage) + R"(,"temperature":0)", "temperature", "Unrecognized");
}

TEST_F(OllamaRequestTest, WhatWouldChangeTheAnswerIsRefused) {
  for (const char* field :
       {R"("images":["aGk="])", R"("logprobs":true)", R"("template":"x")", R"("context":[1])"}) {
    const std::string name = std::string(field).substr(1, std::string(field).find('"', 1) - 1);
    refused_chat(fmt::format("{},{}", kHiMessage, field), name, "not supported");
    refused_generate(fmt::format(R"("prompt":"a",{})", field), name, "not supported");
  }
  EXPECT_TRUE(
      generate(R"("prompt":"a","images":[],"template":"","context":null,"logprobs":false,"top_logprobs":3)")
          .ignored_fields.empty());
}

TEST_F(OllamaRequestTest, CallsAndResultsBecomeMessages) {
  EXPECT_EQ(rendered(R"([{"role":"system","content":"be"},{"role":"user","content":"?"},
      {"role":"assistant","thinking":"hm","content":"","tool_calls":[
        {"function":{"index":0,"name":"f","arguments":{"a":[1]}}},{"function":{"name":"g"}},
        {"id":"x1","type":"function","function":{"name":"f","arguments":{}}}]},
      {"role":"tool","tool_name":"g","content":"12 C"},{"role":"tool","content":"no"},
      {"role":"tool","tool_call_id":"x1","content":"yes"},{"role":"tool","content":"late"},
      {"role":"assistant","content":"so"}])"),
            OrderedJson::parse(R"([{"role":"system","content":"be"},{"role":"user","content":"?"},
      {"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[
        {"id":"call00000","type":"function","function":{"name":"f","arguments":{"a":[1]}}},
        {"id":"call00001","type":"function","function":{"name":"g","arguments":{}}},
        {"id":"x1","type":"function","function":{"name":"f","arguments":{}}}]},
      {"role":"tool","content":"12 C","tool_call_id":"call00001","name":"g"},
      {"role":"tool","content":"no","tool_call_id":"call00000","name":"f"},
      {"role":"tool","content":"yes","tool_call_id":"x1","name":"f"},
      {"role":"tool","content":"late","tool_call_id":"call00000"},
      {"role":"assistant","content":"so"}])"));
}

TEST_F(OllamaRequestTest, ResultsBelongToTheNewestCalls) {
  api_->context.max_model_len = 100'000;
  std::string calls;
  for (int i = 0; i < 300; ++i)
    calls += fmt::format(R"({}{{"function":{{"name":"f{}"}}}})", i == 0 ? "" : ",", i);
  const OrderedJson messages = rendered(R"([{"role":"assistant","tool_calls":[)" + calls +
                                        R"(]},{"role":"tool","tool_name":"f0","content":"a"},
      {"role":"tool","tool_call_id":"call00299","content":"b"},{"role":"tool","content":"c"}])");
  EXPECT_EQ(messages[0]["tool_calls"].size(), 300u);
  EXPECT_EQ(messages[1]["tool_call_id"], "call00000") << "of a call that is forgotten";
  EXPECT_EQ(messages[2]["name"], "f299");
  EXPECT_EQ(messages[3]["name"], "f44");
}

TEST_F(OllamaRequestTest, MessagesAreChecked) {
  const auto refused = [&](const std::string& messages, const std::string& param, const std::string& words) {
    refused_chat(R"("messages":)" + messages, param, words);
  };
  refused("[]", "messages", "empty");
  refused("{}", "messages", "an array");
  refused("[7]", "messages[0]", "an object");
  refused(R"([{"content":"x"}])", "messages[0].role", "missing");
  refused(R"([{"role":"ghost","content":"x"}])", "messages[0].role", "ghost");
  refused(R"([{"role":"user","content":[{"type":"text","text":"a"}]}])", "messages[0].content", "a string");
  refused(R"([{"role":"user","content":"x","images":["aGk="]}])", "messages[0].images", "not supported");
  const std::string calls = R"([{"role":"assistant","content":"","tool_calls":)";
  refused(calls + "{}}]", "messages[0].tool_calls", "an array");
  refused(calls + "[{}]}]", "messages[0].tool_calls[0].function", "missing");
  refused(calls + R"([{"function":{}}]}])", "messages[0].tool_calls[0].function.name", "missing");
  refused(calls + R"([{"function":{"name":"f","arguments":"{}"}}]}])",
          "messages[0].tool_calls[0].function.arguments", "an object");
  refused(R"([{"role":"tool","content":"x","tool_name":7}])", "messages[0].tool_name", "a string");
  refused(R"([{"role":"user","content":"please fail"}])", "messages", "the template's own words");
  expect_error([&] { parse_ollama_chat("{}", api_->context); }, 400, "messages", "missing");
  expect_error([&] { parse_ollama_chat("[]", api_->context); }, 400, "", "an array");
  expect_error([&] { parse_ollama_generate("", api_->context); }, 400, "", "empty");
}

TEST_F(OllamaRequestTest, ToolsGoToTheTemplateAsTheyCome) {
  test::parse_tags(api_->context);
  EXPECT_TRUE(chat(fmt::format("{},{}", kHiMessage, kOllamaTools)).parsing.options.finds_calls);
  EXPECT_EQ(api_->rendered["tools"], OrderedJson::parse(fmt::format("{{{}}}", kOllamaTools))["tools"]);
  EXPECT_FALSE(chat(std::string(kHiMessage) + R"(,"tools":[])").parsing.options.finds_calls);
  refused_chat(std::string(kHiMessage) + R"(,"tools":[{"type":"function"}])", "tools[0].function", "missing");
  refused_chat(std::string(kHiMessage) + R"(,"tools":[{"type":"retrieval"}])", "tools[0].type", "retrieval");
}

TEST_F(OllamaRequestTest, ThinkingIsSwitchedInTheTemplate) {
  const std::pair<const char*, bool> switches[] = {{"true", true}, {"false", false}};
  for (const auto& [value, expected] : switches) {
    chat(fmt::format(R"({},"think":{})", kHiMessage, value));
    EXPECT_EQ(api_->rendered["enable_thinking"], expected);
  }
  chat(std::string(kHiMessage) + R"(,"think":"low")");
  EXPECT_EQ(api_->rendered["reasoning_effort"], "low");
  generate(R"("prompt":"a","think":"max")");
  EXPECT_EQ(api_->rendered["reasoning_effort"], "xhigh");
  chat(std::string(kHiMessage) + R"(,"think":null)");
  EXPECT_FALSE(api_->rendered.contains("enable_thinking"));
  refused_chat(std::string(kHiMessage) + R"(,"think":7)", "think", "a string");
  refused_chat(std::string(kHiMessage) + R"(,"think":"deep")", "think", "deep");
}

TEST_F(OllamaRequestTest, FieldsThatTheTemplateIgnoresAreNamed) {
  api_->context.render_chat = [](const OrderedJson& variables) {
    return RenderedChat(test::render_test_chat(variables),
                        {"messages[].role:system", "enable_thinking", "tools"});
  };
  EXPECT_THAT(generate(R"("prompt":"a","system":"be","think":false)").ignored_fields,
              ElementsAre("system", "think", "tools"));
}

TEST_F(OllamaRequestTest, FormatHoldsTheAnswer) {
  refused_chat(std::string(kHiMessage) + R"(,"format":"json")", "format", "this server's device");
  hold_grammars();
  EXPECT_FALSE(chat(std::string(kHiMessage) + R"(,"format":"")").form);
  EXPECT_TRUE(chat(std::string(kHiMessage) + R"(,"format":"json")").grammar);
  const CompletionRequest held = generate(
      R"("prompt":"a","format":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})");
  ASSERT_TRUE(held.form);
  EXPECT_EQ(held.form->field, "format");
  EXPECT_TRUE(generate(R"("prompt":"a","raw":true,"format":"json")").grammar);
  for (const char* wrong : {"\"xml\"", "[]", "true", "7"})
    refused_chat(fmt::format(R"({},"format":{})", kHiMessage, wrong), "format", "\"json\" or a JSON schema");
  refused_chat(std::string(kHiMessage) + R"(,"format":{"type":"thing"})", "format", "thing");
}

TEST_F(OllamaRequestTest, GeneratedTextsAnswerAMessage) {
  EXPECT_EQ(api_->decode(generate(R"("prompt":"hi","system":"be")").prompts[0]),
            "[system]be<|im_end|>[user]hi<|im_end|>[assistant]");
  EXPECT_EQ(api_->decode(generate(R"("prompt":"hi","system":"")").prompts[0]),
            "[user]hi<|im_end|>[assistant]");
  EXPECT_EQ(api_->decode(generate(R"("prompt":"hi","raw":true)").prompts[0]), "hi");
  refused_generate(R"("prompt":"")", "prompt", "empty");
  refused_generate(R"("system":"be")", "prompt", "empty");
  refused_generate(R"("prompt":7)", "prompt", "a string");
  refused_generate(R"("prompt":"hi","raw":true,"system":"be")", "system", "not supported");
  refused_generate(R"("prompt":"hi","raw":true,"think":true)", "think", "not supported");
  refused_generate(fmt::format(R"("raw":true,"prompt":"{:x>200000}")", ""), "prompt", "maximum");
}

TEST_F(OllamaRequestTest, ASuffixMakesAGap) {
  refused_generate(R"("prompt":"a","suffix":"b")", "suffix", "no tokens for filling a gap");
  api_.emplace(test::gap_vocabulary(false));
  EXPECT_EQ(api_->decode(generate(R"("prompt":"a","suffix":"b")").prompts[0]),
            "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>");
  refused_generate(R"("prompt":"a","suffix":"b","system":"be")", "system", "not supported");
}

TEST_F(OllamaRequestTest, ModelsAreShown) {
  api_->context.model = {
      .architecture = "llama", .dtype = "q8_0", .num_parameters = 1'500'000, .bytes = 1'600'000};
  const auto show = [&](const std::string& body) {
    UnknownFields unknown(false);
    const OrderedJson shown = OrderedJson::parse(ollama_show_response(body, api_->context, unknown));
    EXPECT_THAT(unknown.names(), testing::SizeIs(body.find("verbose") == std::string::npos ? 0 : 1));
    return shown;
  };
  const OrderedJson shown = show(R"({"model":"small:latest","verbose":true})");
  EXPECT_EQ(shown["model_info"], OrderedJson::parse(R"({"general.architecture":"llama",
      "general.parameter_count":1500000,"llama.context_length":1000})"));
  EXPECT_EQ(shown["details"]["parameter_size"], "1.5M");
  EXPECT_EQ(shown["capabilities"], OrderedJson::parse(R"(["completion"])"));
  test::parse_tags(api_->context);
  EXPECT_EQ(show(R"({"name":"other"})")["capabilities"],
            OrderedJson::parse(R"(["completion","tools","thinking"])"));
  expect_error([&] { show(R"({"model":"llama3"})"); }, 404, "model", "llama3");
  expect_error([&] { show(R"({"model":7})"); }, 400, "model", "a string");
  expect_error([&] { show("["); }, 400, "", "JSON");
}

}  // namespace
}  // namespace minfer
