// Chats whose answers contain reasoning and tool calls: the request to the model, and the answer to the client.
#include <regex>

#include <gmock/gmock.h>

#include "tests/support/server/answer_pieces.h"
#include "tests/support/server/api_requests.h"
#include "tests/support/server/tag_parser.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::output;

constexpr const char* kAnswer = R"(<r>hm "x"</r>Hello <c:f>{"a":"<b>"}</c><c:g>{}</c>)";

class OpenAiCallsTest : public testing::Test {
 protected:
  OpenAiCallsTest() { test::parse_tags(api_.context); }
  CompletionRequest ask(const std::string& members = {}) {
    return api_.chat(test::kChatTools + (members.empty() ? "" : "," + members));
  }
  Json whole(const CompletionRequest& request, const std::vector<RequestOutput>& outputs) {
    const auto answer = kChatDialect.answer(request, {"chatcmpl-1", 1700000001}, api_.context, false);
    return Json::parse(test::body_of(*answer, outputs));
  }
  std::vector<std::string> stream(const CompletionRequest& request,
                                  const std::vector<RequestOutput>& outputs) {
    const auto writer = kChatDialect.answer(request, {"chatcmpl-1", 1700000001}, api_.context, true);
    return test::split_events(test::stream_of(*writer, outputs));
  }
  /// The result that a client makes of a stream: the message, the finish reason and the usage.
  static Json joined(const std::vector<std::string>& events) {
    Json message{{"role", "assistant"}, {"content", nullptr}, {"refusal", nullptr}};
    Json finish;
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      const Json choice = Json::parse(events[i])["choices"][0];
      for (const char* name : {"content", "reasoning_content"}) {
        if (const Json more = choice["delta"].value(name, Json("")); more != "")
          message[name] = (message.value(name, Json()).is_null() ? "" : message[name].get<std::string>()) +
                          more.get<std::string>();
      }
      for (const Json& call : choice["delta"].value("tool_calls", Json::array())) {
        const auto index = call["index"].get<size_t>();
        if (call.contains("id")) {
          EXPECT_EQ(index, message.value("tool_calls", Json::array()).size());
          const auto type = call["type"].get<std::string>();
          message["tool_calls"].push_back({{"type", type}, {type, call[type]}});
        } else {
          const std::string type = call.contains("custom") ? "custom" : "function";
          const char* member = type == "custom" ? "input" : "arguments";
          Json& joined = message["tool_calls"][index][type][member];
          joined = joined.get<std::string>() + call[type][member].get<std::string>();
        }
      }
      finish = choice["finish_reason"];
    }
    return {{"message", message}, {"finish_reason", finish}};
  }
  /// Ids are random: checks them and takes them out.
  static Json without_ids(Json message) {
    for (Json& call : message["tool_calls"]) {
      EXPECT_TRUE(std::regex_match(call["id"].get<std::string>(), std::regex("call_[0-9A-Za-z]{24}")));
      call.erase("id");
    }
    return message;
  }

  test::TestApi api_;
};

TEST_F(OpenAiCallsTest, AWholeAnswer) {
  const Json body = whole(ask(), {output(kAnswer, {1, 2, 3}, 3, FinishReason::stop)});
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(without_ids(choice["message"]),
            Json::parse(R"({"role":"assistant","content":"Hello ","refusal":null,
      "reasoning_content":"hm \"x\"","tool_calls":[
      {"type":"function","function":{"name":"f","arguments":"{\"a\":\"<b>\"}"}},
      {"type":"function","function":{"name":"g","arguments":"{}"}}]})"));
  EXPECT_EQ(body["usage"]["completion_tokens_details"], Json::parse(R"({"reasoning_tokens":0})"));
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
}

TEST_F(OpenAiCallsTest, CallsAloneLeaveNoContent) {
  const Json message =
      whole(ask(), {output("<c:f>{}</c>", {1}, 1, FinishReason::stop)})["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_FALSE(message.contains("reasoning_content"));
  const Json empty = whole(ask(), {output("", {1}, 1, FinishReason::stop)})["choices"][0]["message"];
  EXPECT_EQ(empty["content"], "");
  EXPECT_FALSE(empty.contains("tool_calls"));
}

TEST_F(OpenAiCallsTest, AStreamsEvents) {
  const std::vector<std::string> events = stream(
      ask("\"stream\":true"),
      {output("Hi<c:f>{\"a\"", {1}, 1), output(":1}</c>", {2}, 2), output("", {3}, 3, FinishReason::stop)});
  std::vector<std::string> choices;
  for (const std::string& event : events) {
    const size_t begin = event.find("\"choices\":[");
    choices.push_back(begin == std::string::npos ? event : event.substr(begin + 11));
  }
  const std::string id = Json::parse(events.at(2))["choices"][0]["delta"]["tool_calls"][0]["id"];
  const std::string rest = R"(},"logprobs":null,"finish_reason":null}]})";
  EXPECT_THAT(
      choices,
      testing::ElementsAre(
          R"({"index":0,"delta":{"role":"assistant","content":"")" + rest,
          R"({"index":0,"delta":{"content":"Hi")" + rest,
          R"({"index":0,"delta":{"tool_calls":[{"index":0,"id":")" + id +
              R"(","type":"function","function":{"name":"f","arguments":""}}])" + rest,
          R"({"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}])" + rest,
          R"({"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}])" + rest,
          R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls","stop_reason":null}]})",
          "[DONE]"));
}

TEST_F(OpenAiCallsTest, StreamsOfAnySplitAddUpToTheWhole) {
  std::mt19937 random(1);
  const CompletionRequest request = ask();
  const CompletionRequest streamed = ask("\"stream\":true");
  for (int round = 0; round < 200; ++round) {
    const FinishReason finish = round % 3 == 0 ? FinishReason::length : FinishReason::stop;
    const auto outputs =
        test::random_outputs(std::string_view(kAnswer).substr(0, 1 + random() % 60), random, finish);
    const Json choice = whole(request, outputs)["choices"][0];
    const Json made = joined(stream(streamed, outputs));
    Json message =
        choice["message"].contains("tool_calls") ? without_ids(choice["message"]) : choice["message"];
    if (message["content"] == "") message["content"] = nullptr;
    EXPECT_EQ(made["message"], message);
    EXPECT_EQ(made["finish_reason"], choice["finish_reason"]);
  }
}

TEST_F(OpenAiCallsTest, CallsOfCustomToolsBringATextInAnySplit) {
  const std::string tools =
      R"("tools":[{"type":"custom","custom":{"name":"edit"}},{"type":"function","function":{"name":"f"}}])";
  const CompletionRequest request = api_.chat(tools);
  const CompletionRequest streamed = api_.chat(tools + ",\"stream\":true");
  const std::string text =
      R"(<c:edit>{"input": "+ \"é\\n\ud83d\ude00"}</c><c:f>{"input":"a"}</c><c:edit>ls -l</c><c:edit>{"input":"\u00)";
  const Json expected = Json::parse(R"([
      {"type":"custom","custom":{"name":"edit","input":"+ \"é\\n😀"}},
      {"type":"function","function":{"name":"f","arguments":"{\"input\":\"a\"}"}},
      {"type":"custom","custom":{"name":"edit","input":"ls -l"}},
      {"type":"custom","custom":{"name":"edit","input":""}}])");
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const auto outputs = test::random_outputs(text, random, FinishReason::length);
    EXPECT_EQ(without_ids(whole(request, outputs)["choices"][0]["message"])["tool_calls"], expected);
    EXPECT_EQ(joined(stream(streamed, outputs))["message"]["tool_calls"], expected);
  }
}

TEST_F(OpenAiCallsTest, LogprobsComeOnceWithTheFirstEventOfTheirTokens) {
  const CompletionRequest request = ask(R"("stream":true,"logprobs":true)");
  const std::vector<std::string> events =
      stream(request, {test::with_logprobs(output("<r>", {1}, 1), {{97, -1.0f, {}}}),
                       test::with_logprobs(output("a</r>b", {1}, 2, FinishReason::stop), {{98, -2.0f, {}}})});
  std::vector<size_t> counts;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json logprobs = Json::parse(events[i])["choices"][0]["logprobs"];
    counts.push_back(logprobs.is_null() ? 0 : logprobs["content"].size());
  }
  EXPECT_THAT(counts, testing::ElementsAre(0, 1, 1, 0, 0));
  const Json whole_logprobs =
      whole(ask(R"("logprobs":true)"),
            {test::with_logprobs(output("<r>a</r>b", {1, 2}, 2, FinishReason::stop),
                                 {{97, -1.0f, {}}, {98, -2.0f, {}}})})["choices"][0]["logprobs"];
  EXPECT_EQ(whole_logprobs["content"].size(), 2u);
}

TEST_F(OpenAiCallsTest, EachChoiceIsReadByItself) {
  const CompletionRequest request = ask("\"n\":2");
  const auto answer = kChatDialect.answer(request, {"chatcmpl-1", 1}, api_.context, false);
  test::add(*answer, 0, output("<r>a</r>b", {1}, 1));
  test::add(*answer, 1, output("c", {1}, 1));
  test::add(*answer, 1, output("d", {1}, 2, FinishReason::stop));
  EXPECT_FALSE(answer->finished());
  EXPECT_TRUE(answer->ended(1));
  test::add(*answer, 0, output("<c:f>{}</c>", {1}, 2, FinishReason::stop));
  const Json body = Json::parse(test::whole_body(*answer));
  EXPECT_EQ(body["choices"][0]["message"]["reasoning_content"], "a");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(body["choices"][1]["message"]["content"], "cd");
  EXPECT_EQ(body["choices"][1]["finish_reason"], "stop");
}

TEST_F(OpenAiCallsTest, OneCallEndsTheChoiceBeforeItsLastOutput) {
  const CompletionRequest request = ask(R"("stream":true,"parallel_tool_calls":false)");
  const auto writer = kChatDialect.answer(request, {"chatcmpl-1", 1}, api_.context, true);
  std::string events;
  test::append(*writer, 0, output("<c:f>{}</c><c:g>", {1}, 1), events);
  EXPECT_TRUE(writer->ended(0));
  EXPECT_TRUE(writer->finished());
  const Json made = joined(test::split_events(events));
  EXPECT_EQ(made["finish_reason"], "tool_calls");
  EXPECT_EQ(made["message"]["tool_calls"].size(), 1u);
}

TEST_F(OpenAiCallsTest, AProblemIsTold) {
  const CompletionRequest request = ask();
  const auto answer = kChatDialect.answer(request, {"chatcmpl-1", 1}, api_.context, false);
  test::add(*answer, 0, output("<c:f>{", {1}, 1, FinishReason::stop));
  EXPECT_EQ(answer->problem(), "call 1: a call is cut off");
  const auto writer = kChatDialect.answer(request, {"chatcmpl-1", 1}, api_.context, true);
  std::string events;
  test::append(*writer, 0, output("<c:f>{", {1}, 1, FinishReason::stop), events);
  EXPECT_EQ(writer->problem(), "call 1: a call is cut off");
}

TEST_F(OpenAiCallsTest, ARequestSaysWhatIsLookedFor) {
  const auto parsing = [&](const std::string& members) { return api_.chat(members).parsing; };
  EXPECT_TRUE(parsing("").enabled) << "for its reasoning";
  EXPECT_FALSE(parsing("").options.finds_calls);
  EXPECT_TRUE(parsing(test::kChatTools).options.finds_calls);
  EXPECT_FALSE(parsing(std::string(test::kChatTools) + R"(,"tool_choice":"none")").options.finds_calls);
  api_.context.finds_reasoning = false;
  EXPECT_FALSE(parsing("").enabled);
  EXPECT_TRUE(parsing(test::kChatTools).enabled);
  api_.context.finds_calls = false;
  EXPECT_FALSE(parsing(test::kChatTools).enabled);
}

TEST_F(OpenAiCallsTest, APromptMayEndInsideThoughts) {
  const auto begins = [&](const char* end) {
    api_.context.render_chat = [end](const nlohmann::ordered_json&) {
      return std::vector<PromptPart>{{"[user]<think>", false}, {"[assistant]", true}, {end, true}};
    };
    return api_.chat().parsing.options.begins_in_reasoning;
  };
  api_.context.reasoning_format = find_chat_format("think");
  EXPECT_TRUE(begins("<think>\n"));
  EXPECT_FALSE(begins("[THINK]"));
  EXPECT_FALSE(begins("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(begins(""));
  api_.context.reasoning_format = nullptr;
  EXPECT_FALSE(begins("<think>\n"));
}

TEST_F(OpenAiCallsTest, AnAnswerMayGoOnInsideThoughts) {
  api_.context.reasoning_format = find_chat_format("mistral");
  const auto open = [&](const std::string& last) {
    const Json messages = {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", last}}};
    const Json body = {
        {"messages", messages}, {"continue_final_message", true}, {"add_generation_prompt", false}};
    return parse_chat_request(body.dump(), api_.context).parsing.options.open_thoughts;
  };
  EXPECT_EQ(open("[THINK]I add"), 0u);
  EXPECT_EQ(open("\n<think>I add"), 1u);
  EXPECT_EQ(open("<think>I add.</think>5"), std::nullopt);
  EXPECT_EQ(open("The mark <think> opens"), std::nullopt);
}

TEST_F(OpenAiCallsTest, TheEffortReachesTheTemplate) {
  api_.chat(R"("reasoning_effort":"low")");
  EXPECT_EQ(api_.rendered["reasoning_effort"], "low");
  EXPECT_FALSE(api_.rendered.contains("enable_thinking"));
  api_.chat(R"("reasoning_effort":"none")");
  EXPECT_EQ(api_.rendered["enable_thinking"], false);
  api_.chat(R"("reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true})");
  EXPECT_EQ(api_.rendered["enable_thinking"], true);
  api_.chat(R"("reasoning_effort":"sometimes")");
  EXPECT_FALSE(api_.rendered.contains("reasoning_effort"));
}

TEST_F(OpenAiCallsTest, IdsOfCallsAreShortWhereTheTemplateWantsThat) {
  api_.context.short_call_ids = true;
  const Json body = whole(ask(), {output("<c:f>{}</c>", {1}, 1, FinishReason::stop)});
  EXPECT_TRUE(std::regex_match(body["choices"][0]["message"]["tool_calls"][0]["id"].get<std::string>(),
                               std::regex("[0-9A-Za-z]{9}")));
}

}  // namespace
}  // namespace minfer
