#include <gmock/gmock.h>

#include "models/grammar/grammar_cache.h"
#include "server/api/request/chat_prompt.h"
#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kTools = R"("tools":[
  {"type":"function","function":{"name":"add","strict":true,"parameters":{"type":"object","properties":{
     "a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}},
  {"type":"function","function":{"name":"stop"}}])";
constexpr std::string_view kFreeTools = R"("tools":[{"type":"function","function":{"name":"stop"}}])";

class HeldAnswerTest : public ::testing::Test {
 protected:
  HeldAnswerTest()
      : grammars_(
            [this] { return std::make_shared<const TokenTrie>(api_.tokenizer(), api_.context.vocab_size); },
            {}) {
    api_.context.grammars = &grammars_;
    api_.context.call_format = find_chat_format("hermes");
    api_.context.reasoning_format = find_chat_format("think");
    api_.context.finds_calls = true;
    api_.context.finds_reasoning = true;
  }

  /// Returns whether the answer to a chat may be exactly this text.
  static bool allows(const CompletionRequest& request, std::string_view text) {
    if (!request.grammar) return true;
    GrammarMatcher matcher(request.grammar);
    return matcher.accept_bytes(text) && matcher.may_end();
  }
  bool chat_allows(std::string_view members, std::string_view text) const {
    return allows(api_.chat(members), text);
  }

  void expect_chat_refused(std::string_view members, const std::string& param,
                           const std::string& words) const {
    try {
      api_.chat(members);
      ADD_FAILURE() << members << " is accepted";
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status(), 400);
      EXPECT_EQ(error.param(), param);
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }

  test::TestApi api_;
  GrammarCache grammars_;
};

TEST_F(HeldAnswerTest, NothingAskedForLeavesAnswersFree) {
  for (const std::string_view members : {std::string_view(R"("response_format":{"type":"text"})"),
                                         std::string_view(R"("grammar":"")"), kFreeTools}) {
    EXPECT_EQ(api_.chat(members).grammar, nullptr) << members;
  }
  EXPECT_EQ(api_.chat(std::string(kTools) + R"(,"tool_choice":"none")").grammar, nullptr);
  EXPECT_EQ(grammars_.counts().compiled, 0);
}

TEST_F(HeldAnswerTest, EachFieldGivesAForm) {
  const std::vector<std::string> of_one = {
      R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"const":1}}})",
      R"("response_format":{"type":"json_object","schema":{"const":1}})",
      R"("response_format":{"type":"grammar","grammar":"root ::= \"1\""})",
      R"("structured_outputs":{"json":{"const":1}})",
      R"("structured_outputs":{"json":"{\"const\":1}","disable_any_whitespace":true})",
      R"("structured_outputs":{"regex":"1"})",
      R"("structured_outputs":{"choice":["1"]})",
      R"("structured_outputs":{"grammar":"root ::= [1]"})",
      R"("guided_json":{"const":1})",
      R"("guided_regex":"1")",
      R"("guided_choice":["1"])",
      R"("guided_grammar":"root ::= \"1\"")",
      R"("grammar":"root ::= \"1\"")",
      R"("json_schema":{"const":1})",
      R"("regex":"1")",
      R"("ebnf":"root ::= \"1\"")",
      R"("guided_grammar":"start: ONE\nONE: \"1\"")",
      R"("structured_outputs":{"grammar":"start: \"1\""})",
  };
  for (const std::string& members : of_one) {
    for (const CompletionRequest& request : {api_.chat(members), api_.completion(members)}) {
      ASSERT_NE(request.grammar, nullptr) << members;
      EXPECT_TRUE(allows(request, "1")) << members;
      EXPECT_FALSE(allows(request, "2")) << members;
      EXPECT_TRUE(request.ignored_fields.empty()) << members;
      EXPECT_NE(request.engine_request(0, "id").grammar, nullptr);
    }
  }
  for (const char* members :
       {R"("response_format":{"type":"json_object"})", R"("structured_outputs":{"json_object":true})"}) {
    EXPECT_TRUE(chat_allows(members, R"({"a": [1, null]})")) << members;
    EXPECT_FALSE(chat_allows(members, "[1]")) << members;
  }
}

TEST_F(HeldAnswerTest, WhatCannotBeHonouredIsRefusedByItsName) {
  expect_chat_refused(
      R"("response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"a":{"contains":{}}}}}})",
      "response_format.json_schema.schema", "properties.a");
  expect_chat_refused(R"("response_format":{"type":"json_schema"})", "response_format.json_schema",
                      "missing");
  expect_chat_refused(R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})",
                      "response_format.json_schema.schema", "missing");
  expect_chat_refused(R"("response_format":{"type":"xml"})", "response_format.type", "xml");
  expect_chat_refused(R"("guided_regex":"(?=a)b")", "guided_regex", "guided_regex: ");
  expect_chat_refused(R"("grammar":"root ::= root")", "grammar", "left recursion");
  expect_chat_refused(R"("guided_choice":[])", "guided_choice", "at least one");
  expect_chat_refused(R"("guided_choice":[1])", "guided_choice[0]", "1");
  expect_chat_refused(R"("guided_json":"{")", "guided_json", "not JSON");
  expect_chat_refused(R"("guided_json":"3")", "guided_json", "3, expected a JSON schema");
  expect_chat_refused(R"("response_format":{"type":"json_object","schema":[{}]})", "response_format.schema",
                      "an array, expected a JSON schema");
  expect_chat_refused(R"("structured_outputs":{"structural_tag":"x"})", "structured_outputs.structural_tag",
                      "not supported");
  expect_chat_refused(R"("guided_regex":"a","guided_choice":["a"])", "guided_choice", "guided_regex");
  api_.context.grammars = nullptr;
  expect_chat_refused(R"("guided_regex":"a")", "guided_regex", "device");
}

TEST_F(HeldAnswerTest, ThoughtsStayFree) {
  const std::string_view yes = R"("guided_choice":["yes"])";
  EXPECT_TRUE(chat_allows(yes, "<think>hm</think>\n\nyes"));
  EXPECT_FALSE(chat_allows(yes, "<think>hm</think>\n\nno"));
  api_.context.reasoning_format = nullptr;
  api_.context.finds_reasoning = false;
  EXPECT_FALSE(chat_allows(yes, "<think>hm</think>\n\nyes"));
}

TEST_F(HeldAnswerTest, CallsAreDemanded) {
  const std::string tools(kTools);
  const std::string add = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const std::string stop =
      "<tool_call>\n{\"name\": \"stop\", \"arguments\": {\"any\": [\"thing\"]}}\n</tool_call>";
  for (const char* choice :
       {R"(,"tool_choice":"required")", R"(,"tool_choice":"required","parallel_tool_calls":false)"}) {
    EXPECT_TRUE(chat_allows(tools + choice, add)) << choice;
    EXPECT_TRUE(chat_allows(tools + choice, stop)) << choice;
    EXPECT_FALSE(chat_allows(tools + choice, "I would rather not.")) << choice;
    EXPECT_FALSE(chat_allows(tools + choice,
                             "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"1\"}}\n</tool_call>"))
        << choice;
  }
  EXPECT_TRUE(chat_allows(tools + R"(,"tool_choice":"required")", add + "\n" + stop));
  EXPECT_FALSE(
      chat_allows(tools + R"(,"tool_choice":"required","parallel_tool_calls":false)", add + "\n" + stop));
  const std::string named = R"(,"tool_choice":{"type":"function","function":{"name":"stop"}})";
  EXPECT_TRUE(chat_allows(tools + named, stop));
  EXPECT_FALSE(chat_allows(tools + named, add));
}

TEST_F(HeldAnswerTest, OnlyAllowedToolsAreCalled) {
  const std::string add = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const std::string stop = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
  const auto allowed = [](const std::string& mode, const std::string& names) {
    std::string list;
    for (const char name : names)
      list += std::string(list.empty() ? "" : ",") + R"({"type":"function","function":{"name":")" +
              (name == 'a'   ? "add"
               : name == 's' ? "stop"
                             : "gone") +
              "\"}}";
    return std::string(kTools) + R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":")" +
           mode + R"(","tools":[)" + list + "]}}";
  };
  EXPECT_TRUE(chat_allows(allowed("required", "s"), stop));
  EXPECT_TRUE(chat_allows(allowed("required", "s"), stop + "\n" + stop));
  EXPECT_FALSE(chat_allows(allowed("required", "s"), add));
  EXPECT_FALSE(chat_allows(allowed("required", "s"), stop + "\n" + add));
  EXPECT_FALSE(chat_allows(allowed("required", "s"), "No call."));
  EXPECT_TRUE(chat_allows(allowed("required", "as"), add + "\n" + stop));
  EXPECT_TRUE(chat_allows(allowed("auto", "s"), "No call, but 1 < 2."));
  EXPECT_TRUE(chat_allows(allowed("auto", "s"), "Well: " + stop));
  EXPECT_FALSE(chat_allows(allowed("auto", "s"), "Well: " + add));
  EXPECT_TRUE(api_.rendered["tools"].size() == 2) << "the prompt stays the same, and so its prefix";
  for (const char* mode : {"auto", "required"})
    expect_chat_refused(allowed(mode, "sg"), "tool_choice", "no tool named gone");
  api_.context.grammars = nullptr;
  expect_chat_refused(allowed("auto", "s"), "tool_choice", "device");
  api_.context.call_format = nullptr;
  expect_chat_refused(allowed("required", "s"), "tool_choice", "--tool-call-parser");
  EXPECT_EQ(api_.chat(allowed("auto", "s")).grammar, nullptr) << "no text is a call";
}

TEST_F(HeldAnswerTest, StrictToolsAreHeldWhereTheModelCallsOne) {
  EXPECT_TRUE(chat_allows(kTools, "No call, but 1 < 2."));
  EXPECT_TRUE(
      chat_allows(kTools, "Well: <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
  EXPECT_FALSE(
      chat_allows(kTools, "Well: <tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 1}}\n</tool_call>"));
  EXPECT_FALSE(chat_allows(kTools, "<tool_call> what?"));
  // Together with a form of the content.
  const std::string both = std::string(kFreeTools) + R"(,"guided_choice":["yes"])";
  EXPECT_TRUE(chat_allows(both, "yes"));
  EXPECT_TRUE(chat_allows(both, "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(chat_allows(both, "no"));
}

constexpr const char* kLarkTools =
    R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"say",
    "format":{"type":"grammar","grammar":{"syntax":"lark","definition":"start: WORD \"!\\n\"\nWORD: /[a-z]+/"}}}}])";

TEST_F(HeldAnswerTest, CustomToolsAreHeldToTheirLarkGrammars) {
  const auto call = [](const std::string& input) {
    return "<tool_call>\n{\"name\": \"say\", \"arguments\": {\"input\": " + input + "}}\n</tool_call>";
  };
  const std::string tools(kLarkTools);
  for (const std::string& members :
       {tools, tools + R"(,"tool_choice":{"type":"custom","custom":{"name":"say"}})"}) {
    EXPECT_TRUE(chat_allows(members, call(R"("hi!\n")"))) << members;
    EXPECT_FALSE(chat_allows(members, call(R"("hi!")"))) << members;
    EXPECT_FALSE(chat_allows(members, call("{}"))) << members;
  }
  EXPECT_TRUE(chat_allows(tools, "Hello"));
  expect_chat_refused(
      R"("tools":[{"type":"custom","custom":{"name":"say","format":{"type":"grammar","syntax":"lark",
      "definition":"start: a"}}}])",
      "tools[0].custom.format.definition", "Lark, line 1: the rule a is not defined");
}

/// Like the grammars of tools that the server would have to run: agents offer these among others.
TEST_F(HeldAnswerTest, LarkGrammarsThatCallsCannotFollowAreLeftOut) {
  api_.context.call_format = find_chat_format("qwen3_coder");
  ASSERT_NE(api_.context.call_format, nullptr);
  const CompletionRequest request = api_.chat(kLarkTools);
  EXPECT_THAT(request.ignored_fields, testing::ElementsAre("tools[].custom.format.lark"));
  EXPECT_TRUE(request.custom_tools.empty());
}

TEST_F(HeldAnswerTest, EqualRequestsShareAGrammar) {
  const std::string members = std::string(kTools) + R"(,"tool_choice":"required")";
  EXPECT_EQ(api_.chat(members).grammar, api_.chat(members).grammar);
  EXPECT_NE(api_.chat(members).grammar, api_.chat(kTools).grammar);
  EXPECT_EQ(grammars_.counts().compiled, 2);
}

}  // namespace
}  // namespace minfer
