// Answers of /v1/messages: the events against expectations written by hand, and against the whole answer.

#include <gmock/gmock.h>

#include "server/dialects/anthropic/messages.h"
#include "tests/support/server/answer_pieces.h"
#include "tests/support/server/api_requests.h"
#include "tests/support/server/tag_parser.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::output;

class MessagesAnswerTest : public testing::Test {
 protected:
  MessagesAnswerTest() {
    test::parse_tags(api_.context);
    request_ = parse_messages_request(
        R"({"model":"small","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"stop_sequences":["!"],
            "tools":[{"name":"f","input_schema":{}}]})",
        api_.context);
  }
  Json whole(const std::vector<RequestOutput>& outputs) {
    const auto answer = answer_of(false);
    return Json::parse(test::body_of(*answer, outputs));
  }
  std::vector<Json> stream(const std::vector<RequestOutput>& outputs) {
    const auto answer = answer_of(true);
    return test::split_named_events(test::stream_of(*answer, outputs));
  }
  std::unique_ptr<AnswerWriter> answer_of(bool streams) {
    return request_.dialect->answer(request_, {"msg_1", 1700000001}, api_.context, streams);
  }
  static Json without_ids(Json message) {
    for (Json& block : message["content"]) {
      if (!block.contains("id")) continue;
      EXPECT_TRUE(block["id"].get<std::string>().starts_with("toolu_"));
      block.erase("id");
    }
    return message;
  }
  /// The message that a client joins from the events.
  static Json joined(const std::vector<Json>& events) {
    Json message;
    std::string input;
    for (const Json& event : events) {
      if (event["type"] == "message_start") {
        message = event["message"];
      } else if (event["type"] == "content_block_start") {
        EXPECT_EQ(event["index"], message["content"].size());
        message["content"].push_back(event["content_block"]);
        input.clear();
      } else if (event["type"] == "content_block_delta") {
        Json& block = message["content"].at(event["index"].get<size_t>());
        for (const char* name : {"text", "thinking", "signature"})
          if (event["delta"].contains(name))
            block[name] = block[name].get<std::string>() + event["delta"][name].get<std::string>();
        input += event["delta"].value("partial_json", "");
      } else if (event["type"] == "content_block_stop") {
        Json& block = message["content"].at(event["index"].get<size_t>());
        if (block["type"] == "tool_use")
          block["input"] = Json::accept(input) ? Json::parse(input) : Json::object();
      } else if (event["type"] == "message_delta") {
        message.update(event["delta"]);
        message["usage"] = event["usage"];
      }
    }
    return message;
  }

  test::TestApi api_;
  CompletionRequest request_;
};

TEST_F(MessagesAnswerTest, AWholeAnswer) {
  const Json body = whole({test::with_cached(
      output(R"(<r>hm</r>Hello<c:f>{"a":1}</c><c:f>[1]</c>)", {1, 2, 3}, 3, FinishReason::stop), 4)});
  Json expected = Json::parse(R"({"id":"msg_1","type":"message","role":"assistant","model":"small","content":[
      {"type":"thinking","thinking":"hm","signature":"msg_1"},{"type":"text","text":"Hello"},
      {"type":"tool_use","name":"f","input":{"a":1}},{"type":"tool_use","name":"f","input":{}}],
      "stop_reason":"tool_use","stop_sequence":null,"usage":{"cache_creation_input_tokens":0,
      "cache_read_input_tokens":4,"output_tokens":3}})");
  expected["usage"]["input_tokens"] = request_.prompts[0].size() - 4;
  EXPECT_EQ(without_ids(body), expected);
}

TEST_F(MessagesAnswerTest, TimingsStandBesideTheUsageIfAskedFor) {
  const std::vector<RequestOutput> outputs{test::with_times(output("ab", {1, 2}, 2, FinishReason::stop), 4)};
  EXPECT_FALSE(whole(outputs).contains("timings"));
  request_.timings = true;
  const Json timings = whole(outputs)["timings"];
  EXPECT_EQ(timings["predicted_ms"], 4);
  const std::vector<Json> events = stream(outputs);
  EXPECT_EQ(events.at(events.size() - 2)["timings"], timings);
}

TEST_F(MessagesAnswerTest, ItEndsForAReason) {
  const auto reason = [&](FinishReason finish, const std::string& detail = {}) {
    const Json body = whole({output("x", {1}, 1, finish, detail)});
    return std::pair(body["stop_reason"].get<std::string>(), body["stop_sequence"]);
  };
  EXPECT_EQ(reason(FinishReason::stop), std::pair(std::string("end_turn"), Json()));
  EXPECT_EQ(reason(FinishReason::length), std::pair(std::string("max_tokens"), Json()));
  EXPECT_EQ(reason(FinishReason::stop, "!"), std::pair(std::string("stop_sequence"), Json("!")));
}

TEST_F(MessagesAnswerTest, AStreamsEvents) {
  const std::vector<Json> events =
      stream({output("<r>h", {1}, 1), output("m</r>a", {2}, 2), output("b<c:f>{}</c>", {3}, 3),
              output("", {4}, 4, FinishReason::stop)});
  std::vector<std::string> shown;
  for (const Json& event : events) {
    std::string text = event["type"];
    if (event.contains("index")) text += " " + event["index"].dump();
    if (event["type"] == "content_block_delta") text += " " + event["delta"]["type"].get<std::string>();
    shown.push_back(text);
  }
  EXPECT_THAT(shown, testing::ElementsAre("message_start", "ping", "content_block_start 0",
                                          "content_block_delta 0 thinking_delta",
                                          "content_block_delta 0 thinking_delta",
                                          "content_block_delta 0 signature_delta", "content_block_stop 0",
                                          "content_block_start 1", "content_block_delta 1 text_delta",
                                          "content_block_delta 1 text_delta", "content_block_stop 1",
                                          "content_block_start 2", "content_block_delta 2 input_json_delta",
                                          "content_block_stop 2", "message_delta", "message_stop"));
  EXPECT_EQ(events[0]["message"]["content"], Json::array());
  EXPECT_EQ(events[0]["message"]["usage"]["output_tokens"], 1);
  EXPECT_EQ(events[3]["delta"]["thinking"], "h");
  EXPECT_EQ(events[11]["content_block"]["input"], Json::object());
  EXPECT_EQ(events[14]["delta"]["stop_reason"], "tool_use");
}

TEST_F(MessagesAnswerTest, StreamsOfAnySplitAddUpToTheWhole) {
  std::mt19937 random(1);
  const std::string text = R"(<r>hm "x"</r>Hello <c:f>{"a":"<b>"}</c><c:f>{}</c>bye<r>again</r>)";
  for (int round = 0; round < 200; ++round) {
    const auto outputs =
        test::random_outputs(std::string_view(text).substr(0, 1 + random() % text.size()), random,
                             round % 3 == 0 ? FinishReason::length : FinishReason::stop);
    EXPECT_EQ(without_ids(joined(stream(outputs))), without_ids(whole(outputs)));
  }
}

TEST_F(MessagesAnswerTest, ErrorsHaveAnthropicsForm) {
  const std::vector<Json> events =
      stream({output("a", {1}, 1), output("", {}, 1, FinishReason::cancelled), output("late", {2}, 2)});
  EXPECT_EQ(events.back(), Json::parse(R"({"type":"error","error":{"type":"overloaded_error",
      "message":"The server has cancelled the request"}})"));
  const auto type = [](const ApiError& error) {
    return Json::parse(messages_error_json(error))["error"]["type"].get<std::string>();
  };
  EXPECT_EQ(type(bad_request("x", "y")), "invalid_request_error");
  EXPECT_EQ(type(ApiError(401, "x")), "authentication_error");
  EXPECT_EQ(type(ApiError(404, "x")), "not_found_error");
  EXPECT_EQ(type(ApiError(413, "x")), "request_too_large");
  EXPECT_EQ(type(ApiError(429, "x")), "rate_limit_error");
  EXPECT_EQ(type(ApiError(500, "x")), "api_error");
}

}  // namespace
}  // namespace minfer
