// Requests to /v1/responses: the template's input, the engine's request, and refusals.
#include "server/dialects/responses/responses_request.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "models/grammar/grammar_cache.h"
#include "server/dialects/responses/response_store.h"
#include "tests/support/server/api_requests.h"
#include "tests/support/server/tag_parser.h"

namespace minfer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using OrderedJson = nlohmann::ordered_json;

class ResponsesRequestTest : public testing::Test {
 protected:
  ResponsesRequestTest() { api_.context.responses = &store_; }
  static std::string body(const std::string& input, const std::string& members = {}) {
    return fmt::format(R"({{"model":"small","input":{}{}{}}})", input, members.empty() ? "" : ",", members);
  }
  CompletionRequest ask(const std::string& input, const std::string& members = {}) {
    return test::with_grammar(parse_responses_request(body(input, members), api_.context), api_.context);
  }
  /// The messages that the template gets.
  OrderedJson rendered(const std::string& input, const std::string& members = {}) {
    ask(input, members);
    return api_.rendered["messages"];
  }
  void expect_refused(const std::string& input, const std::string& param, const std::string& words,
                      const std::string& members = {}, int status = 400) {
    const auto error = test::api_error_of([&] { ask(input, members); });
    ASSERT_TRUE(error) << input << members;
    EXPECT_EQ(error->status(), status);
    EXPECT_EQ(error->param(), param) << error->what();
    EXPECT_THAT(error->what(), HasSubstr(words)) << input;
  }
  void expect_members_refused(const std::string& members, const std::string& param,
                              const std::string& words) {
    expect_refused(R"("hi")", param, words, members);
  }

  test::TestApi api_;
  ResponseStore store_{ResponseStore::Limits{}};
};

TEST_F(ResponsesRequestTest, TextsBecomeMessages) {
  EXPECT_EQ(rendered(R"("hi")"), OrderedJson::parse(R"([{"role":"user","content":"hi"}])"));
  EXPECT_EQ(rendered(R"([{"role":"developer","content":"brief"},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
      {"type":"message","id":"msg_1","status":"completed","role":"assistant",
       "content":[{"type":"output_text","text":"c","annotations":[],"logprobs":[]}]},
      {"role":"system","content":"now"}])",
                     R"("instructions":"be")"),
            OrderedJson::parse(R"([{"role":"system","content":"be\nbrief"},{"role":"user","content":"a\nb"},
                {"role":"assistant","content":"c"},{"role":"system","content":"now"}])"));
}

TEST_F(ResponsesRequestTest, ItemsOfOneTurnBecomeOneMessage) {
  EXPECT_EQ(rendered(R"([{"role":"user","content":"?"},
      {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"short"}],
       "content":[{"type":"reasoning_text","text":"long"}],"encrypted_content":"x","status":"completed"},
      {"type":"message","role":"assistant","content":"I look"},
      {"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{\"a\":1}","status":"completed"},
      {"type":"function_call","call_id":"c2","name":"g","arguments":""},
      {"type":"function_call_output","call_id":"c1","output":"12 C"},
      {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"x"}]},
      {"type":"reasoning","summary":[{"type":"summary_text","text":"short"}]},
      {"type":"function_call","call_id":"c3","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"c3","output":"9 C"}])"),
            OrderedJson::parse(R"([{"role":"user","content":"?"},
      {"role":"assistant","content":"I look","reasoning_content":"long","tool_calls":[
        {"id":"c1","type":"function","function":{"name":"f","arguments":{"a":1}}},
        {"id":"c2","type":"function","function":{"name":"g","arguments":{}}}]},
      {"role":"tool","content":"12 C","tool_call_id":"c1","name":"f"},
      {"role":"tool","content":"x","tool_call_id":"c2","name":"g"},
      {"role":"assistant","content":null,"reasoning_content":"short","tool_calls":[
        {"id":"c3","type":"function","function":{"name":"f","arguments":{}}}]},
      {"role":"tool","content":"9 C","tool_call_id":"c3","name":"f"}])"));
}

TEST_F(ResponsesRequestTest, ToolsGoToTheTemplateAsChatsHaveThem) {
  test::parse_tags(api_.context);
  const CompletionRequest request =
      ask(R"("hi")", R"("parallel_tool_calls":false,"tools":[{"type":"function","name":"f","description":"d",
          "parameters":{"type":"object"},"strict":true},{"type":"web_search"},{"type":"local_shell"}])");
  EXPECT_TRUE(request.parsing.options.finds_calls);
  EXPECT_TRUE(request.parsing.one_call);
  EXPECT_EQ(api_.rendered["tools"], OrderedJson::parse(R"([
      {"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}])"));
  EXPECT_THAT(request.ignored_fields, ElementsAre("tools[].web_search", "tools[].local_shell"));
  const std::string tool = R"("tools":[{"type":"function","name":"f"}])";
  EXPECT_FALSE(ask(R"("hi")", tool + R"(,"tool_choice":"none")").parsing.options.finds_calls);
  EXPECT_FALSE(api_.rendered.contains("tools"));
  expect_members_refused(tool + R"(,"tool_choice":"required")", "tool_choice", "--tool-call-parser");
  expect_members_refused(tool + R"(,"tool_choice":{"type":"function","name":"f"})", "tool_choice",
                         "--tool-call-parser");
  api_.context.refuses_unknown_fields = true;
  expect_members_refused(R"("tools":[{"type":"web_search"}])", "tools[0].web_search", "Unrecognized");
}

TEST_F(ResponsesRequestTest, ToolsOfNamespacesAreShownUnderBothNames) {
  test::parse_tags(api_.context);
  const std::string tools = R"("tools":[{"type":"function","name":"read"},
      {"type":"namespace","name":"mcp__notes","description":"Notes of the team","tools":[
        {"type":"function","name":"read","description":"d","parameters":{"type":"object"},"strict":false,
         "defer_loading":true},{"type":"mcp","name":"x"}]}])";
  const CompletionRequest request = ask(R"([{"role":"user","content":"?"},
              {"type":"function_call","call_id":"c1","namespace":"mcp__notes","name":"read","arguments":"{}"},
              {"type":"function_call_output","call_id":"c1","output":"milk"},
              {"type":"function_call","call_id":"c2","namespace":"gone","name":"read","arguments":"{}"},
              {"type":"function_call_output","call_id":"c2","output":"none"}])",
                                        tools);
  EXPECT_EQ(api_.rendered["tools"], OrderedJson::parse(R"([
      {"type":"function","function":{"name":"read"}},
      {"type":"function","function":{"name":"mcp__notes__read","description":"d","parameters":{"type":"object"}}}])"));
  const OrderedJson& messages = api_.rendered["messages"];
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["name"], "mcp__notes__read");
  EXPECT_EQ(messages[2]["name"], "mcp__notes__read");
  EXPECT_EQ(messages[3]["tool_calls"][0]["function"]["name"], "read") << "a namespace that is not offered";
  EXPECT_THAT(request.ignored_fields, ElementsAre("tools[].tools[].mcp"));
  expect_members_refused(
      tools + R"(,"tool_choice":{"type":"function","namespace":"mcp__notes","name":"write"})", "tool_choice",
      "no tool named write");
  expect_members_refused(
      tools + R"(,"tool_choice":{"type":"function","namespace":"mcp__notes","name":"read"})", "tool_choice",
      "--tool-call-parser");
  const auto allowed = [&](const std::string& mode, const std::string& name) {
    return tools + R"(,"tool_choice":{"type":"allowed_tools","mode":")" + mode +
           R"(","tools":[{"type":"function","namespace":"mcp__notes","name":")" + name + "\"}]}";
  };
  expect_members_refused(allowed("auto", "write"), "tool_choice", "no tool named write");
  expect_members_refused(allowed("required", "read"), "tool_choice", "--tool-call-parser");
  EXPECT_THAT(ask(R"("?")", allowed("auto", "read")).tool_choice.names, ElementsAre("mcp__notes__read"));
  expect_members_refused(
      R"("tools":[{"type":"function","name":"a__b"},
                  {"type":"namespace","name":"a","tools":[{"type":"function","name":"b"}]}])",
      "tools[1].tools[0].name", "another tool as \"a__b\"");
  expect_members_refused(R"("tools":[{"type":"namespace","name":"a b","tools":[
                              {"type":"function","name":"c"}]}])",
                         "tools[0].tools[0].name", "a-z");
  expect_members_refused(R"("tools":[{"type":"namespace","name":"","tools":[]}])", "tools[0].name", "empty");
  expect_members_refused(R"("tools":[{"type":"namespace","name":"a","tools":[
                              {"type":"function","name":""}]}])",
                         "tools[0].tools[0].name", "empty");
  expect_members_refused(R"("tools":[{"type":"namespace","name":"a"}])", "tools[0].tools", "missing");
  api_.context.limits.max_tools = 1;
  expect_members_refused(tools, "tools", "at most 1");
}

TEST_F(ResponsesRequestTest, ToolsThatComeUpInTheInputAreShownWithTheOthers) {
  const CompletionRequest request =
      ask(R"([{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"g"}]},
              {"role":"user","content":"?"},
              {"type":"tool_search_output","call_id":"s1","execution":"client","status":"completed","tools":[
                {"type":"namespace","name":"n","tools":[{"type":"function","name":"h"}]},
                {"type":"function","name":"g","description":"newer"}]}])",
          R"("tools":[{"type":"function","name":"f"}])");
  EXPECT_EQ(api_.rendered["tools"], OrderedJson::parse(R"([
      {"type":"function","function":{"name":"f"}},
      {"type":"function","function":{"name":"g","description":"newer"}},
      {"type":"function","function":{"name":"n__h"}}])"));
  EXPECT_EQ(api_.rendered["messages"].size(), 1u);
  EXPECT_THAT(request.ignored_fields, ElementsAre());
  const auto echo = nlohmann::json::parse("{" + request.responses->members.substr(1) + "}");
  EXPECT_EQ(echo["tools"].size(), 1u) << "the request's own";
  expect_refused(R"([{"type":"additional_tools"}])", "input[0].tools", "missing");
}

TEST_F(ResponsesRequestTest, CustomToolsAreShownAsFunctionsOfOneText) {
  test::parse_tags(api_.context);
  const std::string tools = R"("tools":[
      {"type":"custom","name":"edit","description":"d","format":{"type":"text"},"defer_loading":false},
      {"type":"custom","name":"sum","format":{"type":"grammar","syntax":"regex","definition":"\\d+|x"}},
      {"type":"namespace","name":"n","tools":[{"type":"custom","name":"edit"}]}])";
  api_.context.call_format = nullptr;
  const CompletionRequest request = ask(R"("hi")", tools);
  const OrderedJson input = OrderedJson::parse(
      R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"],
          "additionalProperties":false})");
  OrderedJson held = input;
  held["properties"]["input"]["pattern"] = "^(?:\\d+|x)$";
  const auto function = [](const char* name, const OrderedJson& parameters) {
    return OrderedJson{{"type", "function"}, {"function", {{"name", name}, {"parameters", parameters}}}};
  };
  OrderedJson edit = function("edit", input);
  edit["function"] = {{"name", "edit"}, {"description", "d"}, {"parameters", input}};
  EXPECT_EQ(api_.rendered["tools"],
            OrderedJson::array({edit, function("sum", held), function("n__edit", input)}));
  EXPECT_THAT(request.custom_tools, ElementsAre("edit", "n__edit", "sum"));
  EXPECT_THAT(request.ignored_fields, ElementsAre());
  const auto echo = OrderedJson::parse("{" + request.responses->members.substr(1) + "}");
  EXPECT_EQ(echo["tools"], OrderedJson::parse("{" + tools + "}")["tools"]);

  const auto allowed = [&](const std::string& tool) {
    return tools + R"(,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[)" + tool + "]}";
  };
  EXPECT_THAT(ask(R"("?")", allowed(R"({"type":"custom","name":"edit"})")).tool_choice.names,
              ElementsAre("edit"));
  EXPECT_THAT(ask(R"("?")", allowed(R"({"type":"custom","namespace":"n","name":"edit"})")).tool_choice.names,
              ElementsAre("n__edit"));
  expect_members_refused(tools + R"(,"tool_choice":{"type":"custom","name":"gone"})", "tool_choice",
                         "no tool named gone");
  expect_members_refused(tools + R"(,"tool_choice":{"type":"custom","name":"edit"})", "tool_choice",
                         "--tool-call-parser");
  expect_members_refused(tools + R"(,"tool_choice":{"type":"custom"})", "tool_choice.name", "missing");
  expect_members_refused(tools + R"(,"tool_choice":{"type":"mcp","name":"edit"})", "tool_choice.type",
                         "\"custom\"");
}

TEST_F(ResponsesRequestTest, TheLaterOfTwoToolsOfOneNameHolds) {
  const std::string function = R"({"type":"function","name":"f"})";
  const std::string custom = R"({"type":"custom","name":"f","description":"text"})";
  CompletionRequest request = ask(R"("?")", "\"tools\":[" + function + "," + custom + "]");
  EXPECT_THAT(request.custom_tools, ElementsAre("f"));
  EXPECT_EQ(api_.rendered["tools"].size(), 1u);
  EXPECT_EQ(api_.rendered["tools"][0]["function"]["description"], "text");
  request = ask(R"("?")", "\"tools\":[" + custom + "," + function + "]");
  EXPECT_THAT(request.custom_tools, ElementsAre());
  EXPECT_FALSE(api_.rendered["tools"][0]["function"].contains("parameters"));
}

TEST_F(ResponsesRequestTest, InputsThatFollowALarkGrammarAreLeftOutByName) {
  const std::string tools = R"("tools":[{"type":"function","name":"f"},{"type":"custom","name":"apply_patch",
      "format":{"type":"grammar","syntax":"lark","definition":"start: \"a\""}}])";
  const CompletionRequest request = ask(R"("hi")", tools);
  EXPECT_THAT(request.ignored_fields, ElementsAre("tools[].format.lark"));
  EXPECT_EQ(api_.rendered["tools"].size(), 1u);
  EXPECT_THAT(request.custom_tools, ElementsAre());
  expect_members_refused(tools + R"(,"tool_choice":{"type":"custom","name":"apply_patch"})", "tool_choice",
                         "no tool named apply_patch");
  api_.context.refuses_unknown_fields = true;
  expect_members_refused(tools, "tools[1].format.lark", "Unrecognized");
}

TEST_F(ResponsesRequestTest, CustomToolsOfOddShapesAreRefusedByTheirPlace) {
  const auto expect_tool_refused = [this](const std::string& members, const std::string& param,
                                          const std::string& words) {
    expect_members_refused(R"("tools":[{"type":"custom")" + members + "}]", "tools[0]." + param, words);
  };
  expect_tool_refused("", "name", "missing");
  expect_tool_refused(R"(,"name":"")", "name", "empty");
  expect_tool_refused(R"(,"name":"a b")", "name", "a-z");
  expect_tool_refused(R"(,"name":7)", "name", "a string");
  expect_tool_refused(R"(,"name":"a","description":7)", "description", "a string");
  expect_tool_refused(R"(,"name":"a","format":"text")", "format", "an object");
  expect_tool_refused(R"(,"name":"a","format":{})", "format.type", "missing");
  expect_tool_refused(R"(,"name":"a","format":{"type":7})", "format.type", "a string");
  expect_tool_refused(R"(,"name":"a","format":{"type":"json"})", "format.type", "text or grammar");
  const auto expect_grammar_refused = [&](const std::string& members, const std::string& param,
                                          const std::string& words) {
    expect_tool_refused(R"(,"name":"a","format":{"type":"grammar")" + members + "}", param, words);
  };
  expect_grammar_refused("", "format.syntax", "missing");
  expect_grammar_refused(R"(,"syntax":"gbnf","definition":"a")", "format.syntax", "regex or lark");
  for (const char* syntax : {"regex", "lark"}) {
    const std::string member = fmt::format(R"(,"syntax":"{}")", syntax);
    expect_grammar_refused(member, "format.definition", "missing");
    expect_grammar_refused(member + R"(,"definition":{})", "format.definition", "a string");
  }
  expect_grammar_refused(R"(,"syntax":"regex","definition":"a)|(?:b")", "format.definition",
                         ") without its (");
  expect_grammar_refused(R"re(,"syntax":"regex","definition":"(?=a)")re", "format.definition", "look-around");
  const CompletionRequest request =
      ask(R"("hi")", R"("tools":[{"type":"custom","name":"a","format":{"type":"text","x":1},"y":2}])");
  EXPECT_THAT(request.ignored_fields, ElementsAre("tools[].format.x", "tools[].y"));
  EXPECT_NO_THROW(ask(R"("hi")", R"("tools":[{"type":"custom","name":"a","format":null}])"));
}

TEST_F(ResponsesRequestTest, AnInputIsHeldToItsRegularExpression) {
  test::parse_tags(api_.context);
  const std::string tools = R"("tools":[{"type":"custom","name":"sum",
      "format":{"type":"grammar","syntax":"regex","definition":"\\d[+]\\d|\"\n"}}])";
  api_.context.call_format = find_chat_format("hermes");
  expect_members_refused(tools, "tools", "grammar");
  GrammarCache grammars(
      [this] { return std::make_shared<const TokenTrie>(api_.tokenizer(), api_.context.vocab_size); }, {});
  api_.context.grammars = &grammars;
  const auto allows = [&](const std::string& members, const std::string& arguments) {
    GrammarMatcher matcher(ask(R"("hi")", tools + members).grammar);
    return matcher.accept_bytes("<tool_call>\n{\"name\": \"sum\", \"arguments\": " + arguments +
                                "}\n</tool_call>") &&
           matcher.may_end();
  };
  for (const char* members :
       {"", R"(,"tool_choice":"required")", R"(,"tool_choice":{"type":"custom","name":"sum"})"}) {
    EXPECT_TRUE(allows(members, R"({"input": "1+2"})")) << members;
    EXPECT_TRUE(allows(members, R"({"input": "\"\n"})")) << members;
    for (const char* wrong : {R"({"input": "1+2x"})", R"({"input": "x1+2"})", R"({"input": ""})", "{}",
                              R"({"input": "1+2", "more": 1})"}) {
      EXPECT_FALSE(allows(members, wrong)) << members << wrong;
    }
  }
  api_.context.call_format = find_chat_format("qwen3_coder");
  expect_members_refused(tools, "tools", "pattern");
}

TEST_F(ResponsesRequestTest, CallsOfCustomToolsAreShownAsCallsWithOneArgument) {
  EXPECT_EQ(rendered(R"([{"role":"user","content":"?"},
      {"type":"custom_tool_call","id":"ctc_1","status":"completed","call_id":"c1","name":"edit","input":"+ a line"},
      {"type":"custom_tool_call_output","call_id":"c1","output":"done"}])"),
            OrderedJson::parse(R"([{"role":"user","content":"?"},
      {"role":"assistant","content":null,"tool_calls":[
        {"id":"c1","type":"function","function":{"name":"edit","arguments":{"input":"+ a line"}}}]},
      {"role":"tool","content":"done","tool_call_id":"c1","name":"edit"}])"));
  expect_refused(R"([{"type":"custom_tool_call","call_id":"c1","name":"edit"}])", "input[0].input",
                 "missing");
}

TEST_F(ResponsesRequestTest, CallsWithoutTextOfAnotherServersToolsAreIgnoredByName) {
  const std::string input = R"([{"role":"user","content":"?"},
      {"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},
      {"type":"tool_search_call","call_id":"s1","execution":"client","arguments":{"query":"q"}},
      {"role":"assistant","content":"found"}])";
  EXPECT_THAT(
      ask(input, R"("context_management":[{"type":"compaction","compact_threshold":1000}])").ignored_fields,
      ElementsAre("input[].web_search_call", "input[].tool_search_call", "context_management"));
  EXPECT_EQ(api_.rendered["messages"].size(), 2u);
  api_.context.refuses_unknown_fields = true;
  expect_refused(input, "input[1].web_search_call", "Unrecognized");
}

TEST_F(ResponsesRequestTest, SamplingAndAdvice) {
  const CompletionRequest request =
      ask(R"("hi")", R"("max_output_tokens":7,"temperature":0.5,"top_p":0.25,"stream":true,"store":false,
          "reasoning":{"effort":"low","summary":"auto"},"text":{"format":{"type":"text"},"verbosity":"low"},
          "include":["reasoning.encrypted_content"],"truncation":"auto","prompt_cache_key":"k",
          "service_tier":"auto","user":"u","metadata":{"a":"b"})");
  EXPECT_EQ(request.dialect, &kResponsesDialect);
  EXPECT_THAT(request.ignored_fields, ElementsAre());
  EXPECT_EQ(request.sampling.max_tokens, 7);
  EXPECT_EQ(api_.rendered["reasoning_effort"], "low");
  EXPECT_FALSE(request.responses->store);
  const auto echo = nlohmann::json::parse("{" + request.responses->members.substr(1) + "}");
  EXPECT_EQ(echo["temperature"], 0.5);
  EXPECT_EQ(echo["metadata"]["a"], "b");
  EXPECT_EQ(echo["reasoning"]["effort"], "low");
  EXPECT_EQ(echo["store"], false);
  EXPECT_TRUE(ask(R"("hi")").responses->store);
}

TEST_F(ResponsesRequestTest, AConversationGoesOnWithoutItsInstructions) {
  store_.put("resp_1", {"{}", std::make_shared<const std::string>(R"([{"role":"user","content":"a"})"),
                        R"({"role":"assistant","content":null,"tool_calls":[
      {"id":"c1","type":"function","function":{"name":"f","arguments":{}}}]})"});
  const CompletionRequest request = ask(R"([{"type":"function_call_output","call_id":"c1","output":"12 C"}])",
                                        R"("previous_response_id":"resp_1","instructions":"new")");
  EXPECT_EQ(api_.rendered["messages"], OrderedJson::parse(R"([{"role":"system","content":"new"},
      {"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[
        {"id":"c1","type":"function","function":{"name":"f","arguments":{}}}]},
      {"role":"tool","content":"12 C","tool_call_id":"c1","name":"f"}])"));
  EXPECT_EQ(OrderedJson::parse(*request.responses->history + "]").size(), 3u);
  expect_refused(R"("hi")", "previous_response_id", "resp_2", R"("previous_response_id":"resp_2")", 404);
  api_.context.responses = nullptr;
  expect_refused(R"("hi")", "previous_response_id", "resp_1", R"("previous_response_id":"resp_1")", 404);
}

TEST_F(ResponsesRequestTest, AHistoryHasALimitOfItsOwn) {
  const std::string text(100'000, 'a');
  store_.put("resp_1", {"{}", std::make_shared<const std::string>(R"([{"role":"user","content":"hi"})"),
                        R"({"role":"assistant","content":"a","reasoning_content":")" + text + "\"}"});
  store_.put("resp_2", {"{}", std::make_shared<const std::string>(R"([{"role":"user","content":"hi"})"),
                        R"({"role":"assistant","content":"a"})"});
  const std::string member = R"("previous_response_id":"resp_1")";
  EXPECT_NO_THROW(ask(R"("hi")", member));
  EXPECT_TRUE(has_long_history(body(R"("hi")", member), api_.context))
      << "it is read where it holds up nobody";
  EXPECT_FALSE(has_long_history(body(R"("hi")", R"("previous_response_id":"resp_2")"), api_.context));
  EXPECT_FALSE(has_long_history(body(R"("hi")"), api_.context));
  EXPECT_FALSE(has_long_history("{\"previous_response_id\"", api_.context)) << "no JSON";
  api_.context.limits.max_history_bytes = 100'000;
  expect_refused(R"("hi")", "previous_response_id", "expected at most 100000", member);
}

/// An agent's request: its knowledge of the machine, then the question.
TEST_F(ResponsesRequestTest, MessagesOfOneSideThatFollowEachOtherAreOne) {
  EXPECT_EQ(rendered(R"([{"role":"user","content":"env"},{"role":"user","content":"hi"}])"),
            OrderedJson::parse(R"([{"role":"user","content":"env\nhi"}])"));
  EXPECT_EQ(rendered(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},
                         {"role":"assistant","content":"c"},{"role":"user","content":"d"}])"),
            OrderedJson::parse(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b\nc"},
                                   {"role":"user","content":"d"}])"));
  EXPECT_EQ(rendered(R"([{"role":"user","content":"a"},
                         {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
                         {"role":"assistant","content":"b"}])")
                .size(),
            3u)
      << "what is said behind a call is another message";
  store_.put("resp_1", {"{}", std::make_shared<const std::string>(R"([{"role":"user","content":"a"})"),
                        R"({"role":"user","content":"b"})"});
  EXPECT_EQ(rendered(R"("c")", R"("previous_response_id":"resp_1")"),
            OrderedJson::parse(R"([{"role":"user","content":"a"},{"role":"user","content":"b\nc"}])"));
}

TEST_F(ResponsesRequestTest, FormatsThatNobodyKnowsAreNamed) {
  GrammarCache grammars(
      [this] { return std::make_shared<const TokenTrie>(api_.tokenizer(), api_.context.vocab_size); },
      GrammarCache::Options{});
  api_.context.grammars = &grammars;
  EXPECT_THAT(ask(R"("hi")", R"("text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object",
                     "properties":{"a":{"type":"string","format":"color\r\n"},
                                   "b":{"type":"string","format":"date"}}}}})")
                  .ignored_fields,
              ElementsAre("text.format.schema.format:color??"));
}

TEST_F(ResponsesRequestTest, WhatCannotBeDoneIsRefusedByItsPlace) {
  expect_refused("null", "input", "missing");
  expect_refused("7", "input", "a string or an array");
  expect_refused("[]", "input", "empty");
  expect_refused("[7]", "input[0]", "an object");
  expect_refused(R"([{"role":"tool","content":"x"}])", "input[0].role", "tool");
  expect_refused(R"([{"role":"user"}])", "input[0].content", "missing");
  expect_refused(R"([{"role":"user","content":[{"type":"input_image"}]}])", "input[0].content[0]",
                 "input_image");
  expect_refused(R"([{"id":"msg_1"}])", "input[0].type", "item_reference");
  expect_refused(R"([{"type":"local_shell_call"}])", "input[0].type", "local_shell_call");
  expect_refused(R"([{"type":"function_call","name":"f","arguments":"{}"}])", "input[0].call_id", "missing");
  expect_refused(R"([{"type":"function_call_output","call_id":"c"}])", "input[0].output", "missing");
  expect_members_refused(R"("text":{"format":{"type":"json_object"}})", "text.format", "grammar");
  expect_members_refused(R"("text":{"format":{"type":"xml"}})", "text.format.type", "xml");
  expect_members_refused(R"("background":true)", "background", "not supported");
  expect_members_refused(R"("conversation":"c")", "conversation", "not supported");
  expect_members_refused(R"("top_logprobs":2)", "top_logprobs", "not supported");
  expect_members_refused(R"("include":["message.output_text.logprobs"])", "top_logprobs", "not supported");
  expect_members_refused(R"("max_output_tokens":2000)", "input", "maximum context length");
  EXPECT_NO_THROW(ask(R"("hi")", R"("background":false,"top_logprobs":0)"));
}

}  // namespace
}  // namespace minfer
