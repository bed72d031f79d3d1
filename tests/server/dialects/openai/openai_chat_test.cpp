// Conversations and tools of /v1/chat/completions: the template's input, and refusals.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kTool =
    R"({"type":"function","function":{"name":"get_weather","description":"d",
        "parameters":{"type":"object","properties":{"city":{"type":"string"}}}}})";

class OpenAiChatTest : public ::testing::Test {
 protected:
  static std::string body(const std::string& messages, const std::string& members = {}) {
    return fmt::format(R"({{"model":"small","messages":{}{}{}}})", messages, members.empty() ? "" : ",",
                       members);
  }
  /// The text that the model sees.
  std::string prompt(const std::string& messages, const std::string& members = {}) const {
    return api_.decode(parse_chat_request(body(messages, members), api_.context).prompts.at(0));
  }
  void expect_refused(const std::string& messages, const std::string& param, const std::string& words,
                      const std::string& members = {}) const {
    const auto error = test::api_error_of([&] { parse_chat_request(body(messages, members), api_.context); });
    ASSERT_TRUE(error) << messages << members;
    EXPECT_EQ(error->status(), 400) << messages;
    EXPECT_EQ(error->param(), param) << messages << ": " << error->what();
    EXPECT_THAT(error->what(), HasSubstr(words)) << messages;
  }
  void expect_members_refused(const std::string& members, const std::string& param,
                              const std::string& words) const {
    expect_refused(kHello, param, words, members);
  }

  static constexpr const char* kHello = R"([{"role":"user","content":"hello"}])";
  test::TestApi api_;
};

TEST_F(OpenAiChatTest, MessagesGoThroughTheTemplate) {
  EXPECT_EQ(prompt(R"([{"role":"system","content":"be"},{"role":"user","content":"hello"},
                       {"role":"assistant","content":"hi"},{"role":"user","content":"?"}])"),
            "[system]be<|im_end|>[user]hello<|im_end|>[assistant]hi<|im_end|>[user]?<|im_end|>[assistant]");
  EXPECT_EQ(prompt(kHello, "\"add_generation_prompt\":false"), "[user]hello<|im_end|>");
}

TEST_F(OpenAiChatTest, ATextIsNeverASpecialToken) {
  const CompletionRequest request =
      parse_chat_request(body(R"([{"role":"user","content":"<|im_end|>"}])"), api_.context);
  int num_special = 0;
  for (const TokenId id : request.prompts[0])
    num_special += api_.tokenizer().is_control(id) ? 1 : 0;
  EXPECT_EQ(num_special, 1);
}

TEST_F(OpenAiChatTest, TextPartsAreJoinedByLineEnds) {
  prompt(
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"Ann"}])");
  EXPECT_EQ(api_.rendered["messages"],
            OrderedJson::parse(R"([{"role":"user","content":"a\nb","name":"Ann"}])"));
}

TEST_F(OpenAiChatTest, DevelopersAreSystemToTemplates) {
  prompt(R"([{"role":"developer","content":"be brief"}])");
  EXPECT_EQ(api_.rendered["messages"][0]["role"], "system");
}

TEST_F(OpenAiChatTest, ToolCallsReachTheTemplateWithTheirArgumentsAsObjects) {
  const auto call = [](const std::string& arguments) {
    return R"([{"role":"user","content":"?"},
               {"role":"assistant","content":null,"refusal":null,"annotations":[],"reasoning_content":"hm",
                "tool_calls":[{"id":"c1","type":"function",
                               "function":{"name":"f","arguments":)" +
           OrderedJson(arguments).dump() + R"(}}]},
               {"role":"tool","content":"12 C","tool_call_id":"c1"}])";
  };
  prompt(call(R"({"city":"Oslo"})"));
  EXPECT_EQ(api_.rendered["messages"], OrderedJson::parse(R"([{"role":"user","content":"?"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
       "function":{"name":"f","arguments":{"city":"Oslo"}}}],"reasoning_content":"hm"},
      {"role":"tool","content":"12 C","tool_call_id":"c1"}])"));
  const auto arguments = [&] {
    return api_.rendered["messages"][1]["tool_calls"][0]["function"]["arguments"];
  };
  prompt(call(""));
  EXPECT_EQ(arguments(), OrderedJson::object());
  prompt(call("{broken"));
  EXPECT_EQ(arguments(), "{broken");
  prompt(call("[1]"));
  EXPECT_EQ(arguments(), "[1]");
}

TEST_F(OpenAiChatTest, MessagesOfOtherShapesAreRefusedByName) {
  expect_refused("null", "messages", "missing");
  expect_refused("[]", "messages", "empty");
  expect_refused("{}", "messages", "an array");
  expect_refused("[7]", "messages[0]", "an object");
  expect_refused(R"([{"content":"x"}])", "messages[0].role", "missing");
  expect_refused(R"([{"role":"function","content":"x"}])", "messages[0].role",
                 "\"function\", expected system");
  expect_refused(R"([{"role":7,"content":"x"}])", "messages[0].role", "a string");
  expect_refused(R"([{"role":"user"}])", "messages[0].content", "missing");
  expect_refused(R"([{"role":"assistant","content":null}])", "messages[0].content", "missing");
  expect_refused(R"([{"role":"assistant","content":null,"tool_calls":[]}])", "messages[0].content",
                 "missing");
  expect_refused(R"([{"role":"user","content":7}])", "messages[0].content", "a string or an array");
  expect_refused(R"([{"role":"user","content":[]}])", "messages[0].content", "a string or an array");
  expect_refused(R"([{"role":"assistant","content":[]}])", "messages[0].content", "missing");
  expect_refused(R"([{"role":"user","content":["x"]}])", "messages[0].content[0]", "an object");
  expect_refused(R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text",
                 "missing");
  expect_refused(R"([{"role":"tool","content":"x"}])", "messages[0].tool_call_id", "missing");
  expect_refused(R"([{"role":"assistant","content":"x","refusal":"no"}])", "messages[0].refusal", "null");
  expect_refused(R"([{"role":"assistant","content":"x","audio":{"id":"a"}}])", "messages[0].audio", "null");
  expect_refused(R"([{"role":"assistant","content":"x","tool_calls":[{"id":"a","type":"mcp"}]}])",
                 "messages[0].tool_calls[0].type", "\"function\" or \"custom\"");
  expect_refused(R"([{"role":"assistant","content":"x","tool_calls":[{"id":"a","type":"custom"}]}])",
                 "messages[0].tool_calls[0].custom", "missing");
  expect_refused(R"([{"role":"assistant","content":"x","tool_calls":[{"id":"a","type":"function",
                     "function":{"name":"f","arguments":{}}}]}])",
                 "messages[0].tool_calls[0].function.arguments", "a string");
}

TEST_F(OpenAiChatTest, WhatOtherClientsLeaveOutOfCallsIsFilledIn) {
  prompt(R"([{"role":"user","content":"?"},
             {"role":"assistant","content":[],"tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{}"}}]},
             {"role":"tool","content":"12 C","tool_call_id":"c1"},
             {"role":"assistant","reasoning_content":"hm"},{"role":"user","content":"go on"}])",
         R"("tools":[{"function":{"name":"f"}}],"tool_choice":"auto")");
  EXPECT_EQ(api_.rendered["messages"], OrderedJson::parse(R"([{"role":"user","content":"?"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
       "function":{"name":"f","arguments":{}}}]},
      {"role":"tool","content":"12 C","tool_call_id":"c1"},
      {"role":"assistant","content":"","reasoning_content":"hm"},{"role":"user","content":"go on"}])"));
  EXPECT_EQ(api_.rendered["tools"], OrderedJson::parse(R"([{"type":"function","function":{"name":"f"}}])"));
  expect_members_refused(R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"function":{"name":"g"}})",
                         "tool_choice", "no tool named g");
}

constexpr const char* kOddMessages = R"([
    {"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}],"weight":1,
     "type":"message","name":7},
    {"role":"assistant","content":null,"type":"message","annotations":[{"type":"url_citation"}],"weight":0,
     "tool_calls":[{"id":"c1","type":"function","index":0,"x":1,
                    "function":{"name":"f","arguments":"{}","y":2}}]},
    {"role":"tool","content":"12 C","tool_call_id":"c1","is_error":false}])";
constexpr const char* kOddTools = R"("tools":[{"type":"function","cache_control":{},
    "function":{"name":"f","strict":true,"return":{},"parameters":{"type":"object","x":1}}}])";

TEST_F(OpenAiChatTest, WhatMessagesAndToolsHoldBesideIsIgnoredAndNotShownToTheModel) {
  const CompletionRequest request =
      parse_chat_request(body(kOddMessages, std::string(kOddTools) + ",\"x\":1"), api_.context);
  EXPECT_THAT(request.ignored_fields,
              ElementsAre("messages[].content[].cache_control", "messages[].weight",
                          "messages[].tool_calls[].function.y", "messages[].tool_calls[].x",
                          "messages[].is_error", "tools[].function.return", "tools[].cache_control", "x"));
  EXPECT_EQ(api_.rendered["messages"], OrderedJson::parse(R"([{"role":"user","content":"a"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
       "function":{"name":"f","arguments":{}}}]},
      {"role":"tool","content":"12 C","tool_call_id":"c1"}])"));
  EXPECT_EQ(api_.rendered["tools"],
            OrderedJson::parse(
                R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","x":1}}}])"));
}

TEST_F(OpenAiChatTest, AStrictServerRefusesUnknownFieldsOfMessagesAndTools) {
  api_.context.refuses_unknown_fields = true;
  expect_refused(kOddMessages, "messages[0].content[0].cache_control", "Unrecognized");
  expect_refused(R"([{"role":"user","content":"x"},{"role":"user","content":"x","weight":1}])",
                 "messages[1].weight", "Unrecognized");
  expect_refused(R"([{"role":"user","content":"x","tool_calls":[]}])", "messages[0].tool_calls",
                 "Unrecognized");
  expect_members_refused(kOddTools, "tools[0].function.return", "Unrecognized");
  EXPECT_NO_THROW(prompt(R"([{"role":"user","content":"x","type":"message","name":{}}])",
                         R"("parallel_tool_calls":false,"tools":[{"type":"function",
                            "function":{"name":"f","strict":true}}])"));
}

TEST_F(OpenAiChatTest, ImagesAudioAndFilesAreRefusedByName) {
  for (const char* type : {"image_url", "input_audio", "file", "video_url"}) {
    expect_refused(std::string(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":")") + type +
                       R"(","x":{}}]}])",
                   "messages[0].content[1]", type);
  }
}

TEST_F(OpenAiChatTest, ToolsGoToTheTemplateAsTheyCame) {
  prompt(kHello, std::string("\"tools\":[") + kTool + "]");
  EXPECT_EQ(api_.rendered["tools"], OrderedJson::parse(std::string("[") + kTool + "]"));
  prompt(kHello,
         std::string("\"tool_choice\":\"auto\",\"parallel_tool_calls\":true,\"tools\":[") + kTool + "]");
  EXPECT_TRUE(api_.rendered.contains("tools"));
  prompt(kHello, std::string("\"tool_choice\":\"none\",\"tools\":[") + kTool + "]");
  EXPECT_FALSE(api_.rendered.contains("tools"));
  prompt(kHello, "\"tools\":[]");
  EXPECT_FALSE(api_.rendered.contains("tools"));
  prompt(kHello, R"("tools":[{"function":{"name":"f"}},{"function":{"name":"f","description":"d"}}])");
  EXPECT_EQ(api_.rendered["tools"],
            OrderedJson::parse(R"([{"type":"function","function":{"name":"f","description":"d"}}])"));
}

/// As in /v1/responses, within the forms of chats.
TEST_F(OpenAiChatTest, CustomToolsAreShownAsFunctionsOfOneText) {
  const std::string tools =
      R"("tools":[{"type":"custom","custom":{"name":"edit","description":"d","format":{"type":"text"}}},
      {"type":"custom","custom":{"name":"sum","format":{"type":"grammar","grammar":{"syntax":"regex","definition":"\\d+"}}}}])";
  const std::string call = R"([{"role":"user","content":"hello"},{"role":"assistant","tool_calls":[
      {"id":"a","type":"custom","custom":{"name":"edit","input":"x \"y\""}}]},{"role":"tool","tool_call_id":"a","content":"done"}])";
  const CompletionRequest request = parse_chat_request(body(call, tools), api_.context);
  EXPECT_THAT(request.custom_tools, testing::ElementsAre("edit", "sum"));
  EXPECT_EQ(
      api_.rendered["tools"][0],
      OrderedJson::parse(
          R"({"type":"function","function":{"name":"edit","description":"d","parameters":{"type":"object",
                "properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}})"));
  EXPECT_EQ(api_.rendered["tools"][1]["function"]["parameters"]["properties"]["input"]["pattern"],
            "^(?:\\d+)$");
  EXPECT_EQ(
      api_.rendered["messages"][1]["tool_calls"][0],
      OrderedJson::parse(
          R"({"id":"a","type":"function","function":{"name":"edit","arguments":{"input":"x \"y\""}}})"));
  expect_members_refused(tools + R"(,"tool_choice":{"type":"custom","custom":{"name":"gone"}})",
                         "tool_choice", "no tool named gone");
  expect_members_refused(tools + R"(,"tool_choice":{"type":"custom","custom":{"name":"edit"}})",
                         "tool_choice", "--tool-call-parser");
}

TEST_F(OpenAiChatTest, ForcedAndMalformedToolsAreRefusedByName) {
  const std::string tools = std::string("\"tools\":[") + kTool + "],";
  expect_members_refused(tools + R"("tool_choice":"required")", "tool_choice", "--tool-call-parser");
  expect_members_refused(tools + R"("tool_choice":{"type":"function","function":{"name":"get_weather"}})",
                         "tool_choice", "--tool-call-parser");
  expect_members_refused(R"("tool_choice":"required")", "tool_choice", "no tool");
  expect_members_refused(tools + R"("tool_choice":{"type":"function","function":{"name":"f"}})",
                         "tool_choice", "no tool named f");
  expect_members_refused(tools + R"("tool_choice":{"type":"function"})", "tool_choice.function", "missing");
  expect_members_refused(tools + R"("tool_choice":{"type":"custom"})", "tool_choice.custom", "missing");
  expect_members_refused(tools + R"("tool_choice":{"type":"mcp"})", "tool_choice.type", "mcp");
  expect_members_refused(tools + R"("tool_choice":"any")", "tool_choice", "any");
  const auto allowed = [&](const std::string& members) {
    return tools + R"("tool_choice":{"type":"allowed_tools","allowed_tools":{)" + members + "}}";
  };
  const std::string list = "tool_choice.allowed_tools.tools";
  expect_members_refused(allowed(R"("tools":[{"name":"f"}])"), "tool_choice.allowed_tools.mode", "missing");
  expect_members_refused(allowed(R"("mode":"none","tools":[])"), "tool_choice.allowed_tools.mode", "none");
  expect_members_refused(allowed(R"("mode":"auto")"), list, "missing");
  expect_members_refused(allowed(R"("mode":"auto","tools":[])"), list, "empty");
  expect_members_refused(allowed(R"("mode":"auto","tools":["f"])"), list + "[0]", "an object");
  expect_members_refused(allowed(R"("mode":"auto","tools":[{"type":"mcp"}])"), list + "[0].type", "mcp");
  expect_members_refused(allowed(R"("mode":"auto","tools":[{"name":"get_weather"},{"name":"f"}])"),
                         "tool_choice", "no tool named f");
  EXPECT_NO_THROW(prompt(kHello, R"("tool_choice":"none")"));
  EXPECT_NO_THROW(prompt(kHello, R"("tool_choice":"auto","parallel_tool_calls":false)"));

  expect_members_refused(R"("tools":{})", "tools", "an array");
  expect_members_refused(R"("tools":[7])", "tools[0]", "an object");
  expect_members_refused(R"("tools":[{"type":"mcp"}])", "tools[0].type", "\"function\" or \"custom\"");
  expect_members_refused(R"("tools":[{"type":"custom"}])", "tools[0].custom", "missing");
  expect_members_refused(R"("tools":[{"type":"custom","custom":{}}])", "tools[0].custom.name", "missing");
  expect_members_refused(R"("tools":[{"type":"custom","custom":{"name":"f","format":{"type":"json"}}}])",
                         "tools[0].custom.format.type", "text or grammar");
  expect_members_refused(
      R"("tools":[{"type":"custom","custom":{"name":"f","format":{"type":"grammar","grammar":
                             {"syntax":"regex","definition":"("}}}}])",
      "tools[0].custom.format.grammar.definition", "regular expression");
  expect_members_refused(R"("tools":[{"type":"function"}])", "tools[0].function", "missing");
  const auto function = [](const std::string& text) {
    return R"("tools":[{"type":"function","function":)" + text + "}]";
  };
  expect_members_refused(function("{}"), "tools[0].function.name", "missing");
  expect_members_refused(function(R"({"name":"a b"})"), "tools[0].function.name", "a-z");
  expect_members_refused(function(R"({"name":""})"), "tools[0].function.name", "a-z");
  expect_members_refused(function(R"({"name":"f","parameters":[]})"), "tools[0].function.parameters",
                         "an object");
  expect_members_refused(function(R"({"name":"f","description":1})"), "tools[0].function.description",
                         "a string");
  api_.context.limits.max_tools = 1;
  expect_members_refused(std::string("\"tools\":[") + kTool + "," + kTool + "]", "tools", "at most 1");
}

TEST_F(OpenAiChatTest, TemplateVariablesPassButNotThoseSetElsewhere) {
  prompt(kHello, R"("chat_template_kwargs":{"enable_thinking":false,"x":{"y":[1]}})");
  EXPECT_EQ(api_.rendered["enable_thinking"], false);
  EXPECT_EQ(api_.rendered["x"], OrderedJson::parse(R"({"y":[1]})"));
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
    expect_members_refused(std::string("\"chat_template_kwargs\":{\"") + name + "\":[]}",
                           "chat_template_kwargs", name);
  }
  expect_members_refused(R"("chat_template_kwargs":[])", "chat_template_kwargs", "an object");
  expect_members_refused(R"("chat_template":"{{ 1 }}")", "chat_template", "may not bring one");
}

TEST_F(OpenAiChatTest, AnAnswerCanGoOnWithTheLastMessage) {
  const std::string go_on = R"("continue_final_message":true,"add_generation_prompt":false)";
  EXPECT_EQ(prompt(R"([{"role":"user","content":"a"},{"role":"assistant","content":"One,"}])", go_on),
            "[user]a<|im_end|>[assistant]One,");
  // White space at the end stays if the template keeps it; the text may also occur before.
  EXPECT_EQ(prompt(R"([{"role":"user","content":"One, "},{"role":"assistant","content":"One, "}])", go_on),
            "[user]One, <|im_end|>[assistant]One, ");
  const std::string hello = R"([{"role":"user","content":"a"}])";
  expect_refused(hello, "continue_final_message", "assistant", go_on);
  expect_refused(R"([{"role":"assistant","content":" "}])", "continue_final_message", "with a text", go_on);
  expect_refused(R"([{"role":"assistant","content":"a"}])", "continue_final_message", "add_generation_prompt",
                 "\"continue_final_message\":true");
}

TEST_F(OpenAiChatTest, ATemplateThatDropsTheLastTextCannotBeContinued) {
  api_.context.render_chat = [](const OrderedJson&) { return std::vector<PromptPart>{{"[user]", true}}; };
  expect_refused(R"([{"role":"assistant","content":"something"}])", "continue_final_message",
                 "does not end with", R"("continue_final_message":true,"add_generation_prompt":false)");
  api_.context.render_chat = [](const OrderedJson&) {
    return std::vector<PromptPart>{{fmt::format("something{:x>300}", ""), true}};
  };
  expect_refused(R"([{"role":"assistant","content":"something"}])", "continue_final_message",
                 "does not end with", R"("continue_final_message":true,"add_generation_prompt":false)");
}

/// A template that ignores these fields of a request.
std::function<RenderedChat(const OrderedJson&)> ignoring(std::vector<std::string> names) {
  return [names = std::move(names)](const OrderedJson& variables) {
    return RenderedChat(test::render_test_chat(variables), names);
  };
}

TEST_F(OpenAiChatTest, NamesWhatTheTemplateDoesNotUse) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  api_.context.render_chat = ignoring({"tools", "messages[].tool_calls"});
  EXPECT_THAT(api_.chat(tools).ignored_fields, testing::ElementsAre("messages[].tool_calls", "tools"));
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"f"}})"})
    expect_members_refused(fmt::format(R"({},"tool_choice":{})", tools, choice), "tool_choice",
                           "does not show it any tools");
  api_.context.render_chat = ignoring({"x y", "reasoning_effort", "enable_thinking"});
  EXPECT_THAT(api_.chat(R"("chat_template_kwargs":{"x y":1},"reasoning_effort":"none")").ignored_fields,
              testing::ElementsAre("chat_template_kwargs.x?y", "reasoning_effort"));
  api_.context.render_chat = ignoring({"reasoning_effort"});
  EXPECT_THAT(api_.chat(R"("reasoning_effort":"none")").ignored_fields, testing::ElementsAre())
      << "the template knows how not to think";
  api_.context.refuses_unknown_fields = true;
  EXPECT_THAT(api_.chat(R"("reasoning_effort":"low")").ignored_fields,
              testing::ElementsAre("reasoning_effort"));
}

TEST_F(OpenAiChatTest, WhatTheTemplateRefusesIsTheClientsError) {
  expect_refused(R"([{"role":"user","content":"please fail"}])", "messages", "the template's own words");
  api_.context.render_chat = [](const OrderedJson&) { return std::vector<PromptPart>{}; };
  expect_refused(kHello, "messages", "no tokens");
}

}  // namespace
}  // namespace minfer
