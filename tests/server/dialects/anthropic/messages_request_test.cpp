// Requests to /v1/messages: the template's input, the engine's request, and refusals.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "server/dialects/anthropic/messages.h"
#include "tests/support/server/api_requests.h"
#include "tests/support/server/tag_parser.h"

namespace minfer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kHi = R"([{"role":"user","content":"hi"}])";

class MessagesRequestTest : public testing::Test {
 protected:
  static std::string body(const std::string& messages, const std::string& members = {}) {
    return fmt::format(R"({{"model":"small","max_tokens":5,"messages":{}{}{}}})", messages,
                       members.empty() ? "" : ",", members);
  }
  CompletionRequest ask(const std::string& messages, const std::string& members = {}) {
    return parse_messages_request(body(messages, members), api_.context);
  }
  /// The messages that the template gets.
  OrderedJson rendered(const std::string& messages, const std::string& members = {}) {
    ask(messages, members);
    return api_.rendered["messages"];
  }
  void expect_refused(const std::string& text, const std::string& param, const std::string& words) {
    const auto error = test::api_error_of([&] { parse_messages_request(text, api_.context); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->status(), 400);
    EXPECT_EQ(error->param(), param) << error->what();
    EXPECT_THAT(error->what(), HasSubstr(words)) << text;
  }

  test::TestApi api_;
};

TEST_F(MessagesRequestTest, TextsBecomeMessages) {
  EXPECT_EQ(
      rendered(R"([{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},
                          {"type":"text","text":"b"}]},{"role":"user","content":"c"},
                         {"role":"assistant","content":"d"},{"role":"user","content":"e"}])",
               R"("system":[{"type":"text","text":"be","cache_control":{}},{"type":"text","text":"brief"}])"),
      OrderedJson::parse(R"([{"role":"system","content":"be\nbrief"},{"role":"user","content":"a\nb\nc"},
                {"role":"assistant","content":"d"},{"role":"user","content":"e"}])"));
  EXPECT_EQ(rendered(kHi, R"("system":"be")")[0]["content"], "be");
  EXPECT_EQ(rendered(kHi, R"("system":"")").size(), 1u);
}

TEST_F(MessagesRequestTest, CallsAndResultsBecomeMessages) {
  EXPECT_EQ(rendered(R"([{"role":"user","content":"?"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},
        {"type":"redacted_thinking","data":"x"},{"type":"text","text":"I look"},
        {"type":"tool_use","id":"t1","name":"f","input":{"a":[1]}},
        {"type":"tool_use","id":"t2","name":"g","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"12 C"},
        {"type":"tool_result","tool_use_id":"t2","is_error":true,"content":[{"type":"text","text":"no"}]},
        {"type":"tool_result","tool_use_id":"t3"},{"type":"text","text":"go on"}]}])"),
            OrderedJson::parse(R"([{"role":"user","content":"?"},
      {"role":"assistant","content":"I look","reasoning_content":"hm","tool_calls":[
        {"id":"t1","type":"function","function":{"name":"f","arguments":{"a":[1]}}},
        {"id":"t2","type":"function","function":{"name":"g","arguments":{}}}]},
      {"role":"tool","content":"12 C","tool_call_id":"t1","name":"f"},
      {"role":"tool","content":"Error: no","tool_call_id":"t2","name":"g"},
      {"role":"tool","content":"","tool_call_id":"t3"},{"role":"user","content":"go on"}])"));
  EXPECT_EQ(rendered(R"([{"role":"user","content":"?"},{"role":"assistant","content":[
      {"type":"tool_use","id":"t1","name":"f","input":{}}]},{"role":"user","content":[
      {"type":"tool_result","tool_use_id":"t1"}]}])")[1]["content"],
            nullptr);
}

TEST_F(MessagesRequestTest, ToolsGoToTheTemplateAsChatsHaveThem) {
  const std::string tools = R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"},
      "cache_control":{"type":"ephemeral"}},{"type":"custom","name":"g","input_schema":{}}])";
  test::parse_tags(api_.context);
  EXPECT_TRUE(ask(kHi, tools).parsing.options.finds_calls);
  EXPECT_EQ(api_.rendered["tools"], OrderedJson::parse(R"([
      {"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}},
      {"type":"function","function":{"name":"g","parameters":{}}}])"));
  EXPECT_FALSE(ask(kHi, tools + R"(,"tool_choice":{"type":"none"})").parsing.options.finds_calls);
  EXPECT_FALSE(api_.rendered.contains("tools"));
  EXPECT_TRUE(ask(kHi, tools + R"(,"tool_choice":{"type":"auto","disable_parallel_tool_use":true})")
                  .parsing.one_call);
  const auto refused = [&](const std::string& members, const std::string& param, const std::string& words) {
    expect_refused(body(kHi, members), param, words);
  };
  refused(tools + R"(,"tool_choice":{"type":"any"})", "tool_choice", "--tool-call-parser");
  refused(tools + R"(,"tool_choice":{"type":"tool","name":"f"})", "tool_choice", "--tool-call-parser");
  refused(tools + R"(,"tool_choice":{"type":"tool","name":"h"})", "tool_choice", "no tool named h");
  refused(tools + R"(,"tool_choice":{"type":"some"})", "tool_choice.type", "some");
  refused(R"("tools":[{"name":"f"}])", "tools[0].input_schema", "missing");
  refused(R"("tools":[{"name":"a b","input_schema":{}}])", "tools[0].name", "a-z");
}

TEST_F(MessagesRequestTest, ToolsOfTheServerAreLeftOutByName) {
  test::parse_tags(api_.context);
  const std::string search = R"({"type":"web_search_20250305","name":"web_search","max_uses":8})";
  const CompletionRequest both = ask(
      kHi, fmt::format(R"("tools":[{},{{"name":"f","input_schema":{{}},"defer_loading":true}}])", search));
  EXPECT_EQ(api_.rendered["tools"].size(), 1u);
  EXPECT_THAT(both.ignored_fields, ElementsAre("tools[].web_search_20250305"));
  const std::string alone = fmt::format(R"("tools":[{}])", search);
  EXPECT_FALSE(ask(kHi, alone).parsing.options.finds_calls);
  EXPECT_FALSE(api_.rendered.contains("tools"));
  expect_refused(body(kHi, alone + R"(,"tool_choice":{"type":"tool","name":"web_search"})"), "tool_choice",
                 "no tool named web_search");
  api_.context.refuses_unknown_fields = true;
  expect_refused(body(kHi, alone), "tools[0].web_search_20250305", "Unrecognized");
}

TEST_F(MessagesRequestTest, SearchesOfAnotherServerAreIgnoredByName) {
  const std::string messages = R"([{"role":"user","content":"?"},{"role":"assistant","content":[
      {"type":"server_tool_use","id":"s1","name":"web_search","input":{"query":"q"}},
      {"type":"web_search_tool_result","tool_use_id":"s1","content":[]},{"type":"text","text":"found"}]},
      {"role":"user","content":"and?"}])";
  EXPECT_THAT(ask(messages).ignored_fields, ElementsAre("messages[].content[].server_tool_use",
                                                        "messages[].content[].web_search_tool_result"));
  EXPECT_EQ(api_.rendered["messages"][1], OrderedJson::parse(R"({"role":"assistant","content":"found"})"));
  api_.context.refuses_unknown_fields = true;
  expect_refused(body(messages), "messages[1].content[0].server_tool_use", "Unrecognized");
}

TEST_F(MessagesRequestTest, ReferencesToToolsAreTheirNames) {
  EXPECT_EQ(rendered(R"([{"role":"user","content":"?"},
      {"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"find_tools","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[
        {"type":"tool_reference","tool_name":"f"},{"type":"tool_reference","tool_name":"g"}]}]},
      {"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_reference","name":"f"}}]}])"),
            OrderedJson::parse(R"([{"role":"user","content":"?"},
      {"role":"assistant","content":null,"tool_calls":[
        {"id":"t1","type":"function","function":{"name":"find_tools","arguments":{}}}]},
      {"role":"tool","content":"f\ng","tool_call_id":"t1","name":"find_tools"}])"));
}

TEST_F(MessagesRequestTest, ThinkingIsSwitchedInTheTemplate) {
  ask(kHi, R"("thinking":{"type":"enabled","budget_tokens":1024})");
  EXPECT_EQ(api_.rendered["enable_thinking"], true);
  ask(kHi, R"("thinking":{"type":"disabled"})");
  EXPECT_EQ(api_.rendered["enable_thinking"], false);
  const CompletionRequest adaptive = ask(kHi, R"("thinking":{"type":"adaptive","display":"omitted"},
                                                 "output_config":{"effort":"max"})");
  EXPECT_FALSE(api_.rendered.contains("enable_thinking"));
  EXPECT_EQ(api_.rendered["reasoning_effort"], "xhigh");
  EXPECT_FALSE(adaptive.parsing.shows_reasoning);
  expect_refused(body(kHi, R"("thinking":{"type":"deep"})"), "thinking.type", "deep");
  expect_refused(body(kHi, R"("output_config":{"format":{"type":"json_schema"}})"),
                 "output_config.format.schema", "missing");
  expect_refused(body(kHi, R"("output_config":{"format":{"type":"xml"}})"), "output_config.format.type",
                 "xml");
  expect_refused(body(kHi, R"("output_config":{"format":{"type":"json_object"}},"guided_regex":"a")"),
                 "guided_regex", "output_config.format already");
}

TEST_F(MessagesRequestTest, SamplingAndLengths) {
  const CompletionRequest request =
      ask(kHi, R"("temperature":0.5,"top_p":0.9,"top_k":7,"stop_sequences":["x","y"],"stream":true,
                  "metadata":{"user_id":"u"},"service_tier":"auto")");
  EXPECT_EQ(request.dialect, &kMessagesDialect);
  EXPECT_TRUE(request.ignored_fields.empty());
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_THAT(request.sampling.stop, ElementsAre("x", "y"));
  EXPECT_EQ(request.sampling.max_tokens, 5);
  const CompletionRequest large = parse_messages_request(
      fmt::format(R"({{"model":"small","max_tokens":32000,"messages":{}}})", kHi), api_.context);
  EXPECT_EQ(large.sampling.max_tokens, 1000 - static_cast<int32_t>(large.prompts[0].size()))
      << "as much as the context leaves";
  expect_refused(fmt::format(R"({{"model":"small","messages":{}}})", kHi), "max_tokens", "missing");
  expect_refused(body(fmt::format(R"([{{"role":"user","content":"{:x>2000}"}}])", "")), "messages",
                 "maximum");
}

TEST_F(MessagesRequestTest, AnAnswerGoesOnWithALastMessageOfTheAssistant) {
  const CompletionRequest request =
      ask(R"([{"role":"user","content":"a"},{"role":"assistant","content":"One,"}])");
  EXPECT_EQ(api_.decode(request.prompts[0]), "[user]a<|im_end|>[assistant]One,");
  const CompletionRequest blank =
      ask(R"([{"role":"user","content":"a"},{"role":"assistant","content":" "}])");
  EXPECT_TRUE(api_.decode(blank.prompts[0]).ends_with("[assistant]"));
}

TEST_F(MessagesRequestTest, WhatIsNoTextIsRefusedByItsPlace) {
  const auto refused = [&](const std::string& messages, const std::string& param, const std::string& words) {
    expect_refused(body(messages), param, words);
  };
  refused("[]", "messages", "empty");
  refused(R"([{"role":"system","content":[{"type":"tool_addition","tool":{}}]}])", "messages", "empty");
  refused("[7]", "messages[0]", "an object");
  refused(R"([{"role":"tool","content":"x"}])", "messages[0].role", "user or assistant");
  refused(R"([{"role":"user"}])", "messages[0].content", "missing");
  refused(R"([{"role":"user","content":7}])", "messages[0].content", "a string or an array");
  refused(R"([{"role":"user","content":[]}])", "messages[0].content", "a string or an array");
  refused(R"([{"role":"user","content":[{"type":"image","source":{}}]}])", "messages[0].content[0]", "image");
  refused(R"([{"role":"user","content":[{"type":"document"}]}])", "messages[0].content[0]", "document");
  refused(R"([{"role":"assistant","content":[{"type":"compaction"}]}])", "messages[0].content[0]",
          "compaction");
  refused(
      R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image"}]}]}])",
      "messages[0].content[0].content[0]", "image");
  refused(R"([{"role":"user","content":[{"type":"tool_result"}]}])", "messages[0].content[0].tool_use_id",
          "missing");
  refused(R"([{"role":"user","content":"please fail"}])", "messages", "the template's own words");
}

TEST_F(MessagesRequestTest, UnknownFieldsAreIgnoredOrRefused) {
  const std::string odd = R"("x":1,"context_management":{"edits":[]})";
  EXPECT_THAT(ask(kHi, odd).ignored_fields, ElementsAre("x", "context_management"));
  api_.context.refuses_unknown_fields = true;
  expect_refused(body(kHi, odd), "x", "Unrecognized");
}

TEST_F(MessagesRequestTest, TokensAreCountedAsTheRequestWouldHaveThem) {
  const std::string members = R"("system":"be","tools":[{"name":"f","input_schema":{}}])";
  UnknownFields unknown(false);
  const std::string counted = count_tokens_response(
      fmt::format(R"({{"model":"small","messages":{},{}}})", kHi, members), api_.context, unknown);
  EXPECT_EQ(counted, fmt::format(R"({{"input_tokens":{}}})", ask(kHi, members).prompts[0].size()));
}

}  // namespace
}  // namespace minfer
