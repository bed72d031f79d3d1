// Answers that a grammar allows, against the parser that reads them.
#include "models/chat/answer/chat_grammar.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>

#include "models/grammar/grammar.h"
#include "models/grammar/token_grammar.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using nlohmann::ordered_json;
using Calls = ChatGrammarOptions::Calls;
using ::testing::HasSubstr;

/// <unk> <s> </s> and 256 bytes; the formats' control tokens are written as text.
std::shared_ptr<const TokenTrie> bytes_alone() {
  static const auto trie = std::make_shared<const TokenTrie>(*make_byte_tokenizer(260), 260);
  return trie;
}

std::vector<ToolFunction> made_tools() {
  return {{.name = "get_weather",
           .parameters = ordered_json::parse(R"({"type":"object","properties":{
             "city":{"type":"string","maxLength":12},"days":{"type":"integer","minimum":1,"maximum":14},
             "unit":{"enum":["C","F"]},"is_now":{"type":"boolean"}},"required":["city"],"additionalProperties":false})"),
           .strict = true},
          {.name = "stop", .parameters = nullptr, .strict = false},
          {.name = "add_all",
           .parameters = ordered_json::parse(R"({"type":"object","properties":{
             "numbers":{"type":"array","items":{"type":"number"},"maxItems":3}},"required":["numbers"],"additionalProperties":false})"),
           .strict = true}};
}

/// The tools for the parser, in the form that requests have.
std::shared_ptr<const ordered_json> as_request(const std::vector<ToolFunction>& tools) {
  ordered_json list = ordered_json::array();
  for (const ToolFunction& tool : tools) {
    ordered_json function = {{"name", tool.name}};
    if (!tool.parameters.is_null()) function["parameters"] = tool.parameters;
    list.push_back({{"type", "function"}, {"function", function}});
  }
  return std::make_shared<const ordered_json>(list);
}

/// Texts that end strings, lists, values and thoughts of some format.
constexpr std::string_view kEndings[] = {"\"",
                                         "}",
                                         "]",
                                         ")",
                                         "</think>",
                                         "[/THINK]",
                                         "</seed:think>",
                                         "<|end|>",
                                         "\n</parameter>",
                                         "</parameter>",
                                         "</arg_value>",
                                         "\n```"};

/// A byte that may come next; letters are likelier than others.
char random_byte(const GrammarMatcher& matcher, std::mt19937& random) {
  std::string likely, allowed;
  for (int byte = 0; byte < 256; ++byte) {
    GrammarMatcher next = matcher;
    const char c = static_cast<char>(byte);
    if (!next.accept_bytes({&c, 1})) continue;
    allowed += c;
    if (std::isalnum(byte) != 0 || std::ispunct(byte) != 0) likely += c;
  }
  const std::string& from = likely.empty() ? allowed : likely;
  return from[random() % from.size()];
}

/// A text that the grammar allows. A long text takes an ending wherever one may come.
std::string random_text(const std::shared_ptr<TokenGrammar>& grammar, std::mt19937& random) {
  constexpr size_t kLong = 100, kTooLong = 20'000;
  GrammarMatcher matcher(grammar);
  std::string text;
  while (!matcher.must_end() && text.size() < kTooLong) {
    if (matcher.may_end() && random() % 4 == 0) return text;
    const std::string_view ending = kEndings[random() % std::size(kEndings)];
    // Within a call this text would look like the control token that ends the message.
    const bool may_mislead = ending == "<|end|>" && text.find("functions.") != std::string::npos;
    if (text.size() > kLong && !may_mislead && matcher.accept_bytes(ending)) {
      text += ending;
      continue;
    }
    const char c = random_byte(matcher, random);
    matcher.accept_bytes({&c, 1});
    text += c;
  }
  EXPECT_LT(text.size(), kTooLong) << text;
  return text;
}

struct Answer {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  size_t num_ended = 0;
};

Answer parsed(const ChatFormat* format, const std::string& text, const ChatAnswerOptions& options) {
  const std::unique_ptr<ChatAnswerParser> parser = make_chat_answer_parser(format, options);
  std::vector<ChatDelta> deltas;
  parser->push(text, deltas);
  parser->finish(deltas);
  Answer answer;
  for (const ChatDelta& delta : deltas) {
    if (delta.kind == ChatDelta::Kind::content) answer.content += delta.text;
    if (delta.kind == ChatDelta::Kind::call_begin) answer.calls.emplace_back(delta.text, "");
    if (delta.kind == ChatDelta::Kind::call_arguments) answer.calls.back().second += delta.text;
    if (delta.kind == ChatDelta::Kind::call_end) ++answer.num_ended;
  }
  return answer;
}

std::shared_ptr<TokenGrammar> compiled(const std::vector<ToolFunction>& tools,
                                       const ChatGrammarOptions& options) {
  GrammarBuilder builder;
  const GrammarBuilder::Expr root = add_chat_grammar(builder, tools, options);
  return std::make_shared<TokenGrammar>(compile_grammar(builder, root), bytes_alone());
}

/// Checks the arguments by the schemas of made_tools().
void expect_valid(const std::string& name, const ordered_json& arguments) {
  if (name == "add_all") {
    EXPECT_TRUE(arguments["numbers"].is_array() && arguments["numbers"].size() <= 3);
  } else if (name == "get_weather") {
    EXPECT_TRUE(arguments["city"].is_string());
    const ordered_json days = arguments.value("days", ordered_json(1));
    EXPECT_TRUE(days.is_number_integer() && days >= 1 && days <= 14);
    const ordered_json unit = arguments.value("unit", ordered_json("C"));
    EXPECT_TRUE(unit == "C" || unit == "F");
    EXPECT_TRUE(arguments.value("is_now", ordered_json(true)).is_boolean());
  } else {
    EXPECT_EQ(name, "stop");
  }
}

class ChatGrammarOfFormat : public ::testing::TestWithParam<std::string> {};

TEST_P(ChatGrammarOfFormat, RequiredCallsAreReadAsCalls) {
  const ChatFormat* format = find_chat_format(GetParam());
  const std::vector<ToolFunction> tools = made_tools();
  for (const bool several : {true, false}) {
    const auto grammar = compiled(tools, {.calls = Calls::required,
                                          .several_calls = several,
                                          .call_format = format,
                                          .reasoning_format = format,
                                          .content = {}});
    std::mt19937 random(5);
    for (int round = 0; round < 12; ++round) {
      const std::string text = random_text(grammar, random);
      SCOPED_TRACE(text);
      const Answer answer = parsed(format, text,
                                   {.finds_calls = true,
                                    .finds_reasoning = true,
                                    .begins_in_reasoning = false,
                                    .tools = as_request(tools)});
      EXPECT_EQ(answer.content, "");
      ASSERT_GE(answer.calls.size(), 1u);
      EXPECT_TRUE(several || answer.calls.size() == 1);
      EXPECT_EQ(answer.num_ended, answer.calls.size());
      for (const auto& [name, arguments] : answer.calls) {
        const ordered_json json = ordered_json::parse(arguments, nullptr, false);
        ASSERT_TRUE(json.is_object()) << arguments;
        expect_valid(name, json);
      }
    }
  }
}

TEST_P(ChatGrammarOfFormat, OptionalCallsLeaveTextFree) {
  const ChatFormat* format = find_chat_format(GetParam());
  const auto grammar =
      compiled(made_tools(), {.calls = Calls::optional, .call_format = format, .content = {}});
  const std::string before = GetParam() == "gpt_oss" ? "<|channel|>final<|message|>" : "";
  for (const char* text : {"Nothing to call.", "a < b, f(x) and {1, 2}\n", "\xc3\xa9"}) {
    GrammarMatcher matcher(grammar);
    EXPECT_TRUE(matcher.accept_bytes(before + text) && matcher.may_end()) << text;
  }
}

/// Calls cannot be held if their values stand between quotes that are no JSON.
std::vector<std::string> formats_that_can_be_held() {
  std::vector<std::string> names = chat_format_names();
  std::erase_if(names, [](const std::string& name) {
    return !has_calls(*find_chat_format(name)) || name == "functiongemma" || name == "gemma4";
  });
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, ChatGrammarOfFormat, ::testing::ValuesIn(formats_that_can_be_held()),
                         [](const auto& instance) { return instance.param; });

std::string chat_grammar_error(const std::vector<ToolFunction>& tools, const ChatGrammarOptions& options) {
  return test::refusal_of<GrammarError>([&] { compiled(tools, options); });
}

TEST(ChatGrammarTest, WhatCannotBeHeldIsRefused) {
  std::vector<ToolFunction> tools = made_tools();
  ChatGrammarOptions options{
      .calls = Calls::required, .call_format = find_chat_format("functiongemma"), .content = {}};
  EXPECT_THAT(chat_grammar_error(tools, options), HasSubstr("<start_function_call>"));
  options.call_format = nullptr;
  EXPECT_THAT(chat_grammar_error(tools, options), HasSubstr("--tool-call-parser"));
  options.call_format = find_chat_format("hermes");
  tools[1].parameters = ordered_json::parse(R"({"type":"object","contains":{}})");
  EXPECT_EQ(chat_grammar_error(tools, options), "");  // held as far as possible
  tools[1].strict = true;
  EXPECT_THAT(chat_grammar_error(tools, options), HasSubstr("tool stop: parameters"));
}

TEST(ChatGrammarTest, ContentIsHeldBehindThoughts) {
  const ChatFormat* format = find_chat_format("hermes");
  const auto yes_or_no = [](GrammarBuilder& builder) {
    return builder.choice({builder.literal("yes"), builder.literal("no")});
  };
  const auto takes_text = [&](bool begins_in_reasoning, std::string_view text) {
    GrammarMatcher matcher(compiled(
        {}, {.reasoning_format = format, .begins_in_reasoning = begins_in_reasoning, .content = yes_or_no}));
    return matcher.accept_bytes(text) && matcher.may_end();
  };
  EXPECT_TRUE(takes_text(false, "yes"));
  EXPECT_TRUE(takes_text(false, "<think>\nno, or yes?\n</think>\n\nyes"));
  EXPECT_FALSE(takes_text(false, "<think>no</think>maybe"));
  EXPECT_FALSE(takes_text(false, "hm</think>yes"));
  EXPECT_TRUE(takes_text(true, "hm</think>yes"));
  EXPECT_FALSE(takes_text(true, "yes"));
}

TEST(ChatGrammarTest, ArgumentsAreObjectsWhateverTheSchemaLeavesOut) {
  const std::vector<ToolFunction> tools = {{.name = "f", .parameters = ordered_json::object()}};
  GrammarMatcher matcher(
      compiled(tools, {.calls = Calls::required, .call_format = find_chat_format("hermes"), .content = {}}));
  EXPECT_TRUE(matcher.accept_bytes("<tool_call>{\"name\":\"f\",\"arguments\":"));
  EXPECT_FALSE(matcher.accept_bytes("2"));
  EXPECT_TRUE(matcher.accept_bytes("{}}</tool_call>"));
}

/// Texts between tags have no quotes: for a parameter of several types, a text that looks like JSON may still be a text.
TEST(ChatGrammarTest, TextsBetweenTagsAreHeldByTheirLength) {
  const auto tool = [](const char* schema, bool strict) {
    return std::vector<ToolFunction>{
        {.name = "f",
         .parameters = ordered_json::parse(std::string(R"({"type":"object","properties":{"a":)") + schema +
                                           R"(},"required":["a"]})"),
         .strict = strict}};
  };
  const ChatGrammarOptions options{
      .calls = Calls::required, .call_format = find_chat_format("qwen3_coder"), .content = {}};
  const auto takes_value = [&](const char* schema, std::string_view value) {
    GrammarMatcher matcher(compiled(tool(schema, false), options));
    const std::string before = "<tool_call>\n<function=f>\n<parameter=a>\n",
                      behind = "\n</parameter>\n</function>\n</tool_call>";
    return matcher.accept_bytes(before + std::string(value) + behind);
  };
  EXPECT_TRUE(takes_value(R"({"type":"string","maxLength":3})", "abc"));
  EXPECT_FALSE(takes_value(R"({"type":"string","maxLength":3})", "abcd"));
  EXPECT_TRUE(takes_value(R"({"type":"string","enum":["b","c"]})", "c"));
  EXPECT_FALSE(takes_value(R"({"type":"string","enum":["b","c"]})", "\"c\""));
  EXPECT_TRUE(takes_value(R"({"anyOf":[{"enum":["b"]},{"type":"null"}]})", "b"));
  EXPECT_TRUE(takes_value(R"({"type":["integer","null"]})", "12"));
  EXPECT_FALSE(takes_value(R"({"type":["integer","null"]})", "b"));
  EXPECT_THAT(chat_grammar_error(tool(R"({"type":"string","pattern":"x"})", true), options),
              HasSubstr("pattern"));
}

/// Llama 3's calls have no marker: an answer that begins with a bracket is a call.
TEST(ChatGrammarTest, CallsWithoutMarkerBeginTheAnswer) {
  GrammarMatcher matcher(
      compiled(made_tools(),
               {.calls = Calls::optional, .call_format = find_chat_format("llama3_json"), .content = {}}));
  EXPECT_FALSE(matcher.accept_bytes("{x"));
  EXPECT_TRUE(matcher.accept_bytes("{\"name\": \"stop\""));
}

}  // namespace
}  // namespace minfer
