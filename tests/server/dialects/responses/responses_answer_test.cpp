// Answers of /v1/responses: the events against expectations written by hand and against the whole answer, and the kept responses.
#include <gmock/gmock.h>

#include "server/dialects/responses/response_store.h"
#include "server/dialects/responses/responses_request.h"
#include "tests/support/server/answer_pieces.h"
#include "tests/support/server/api_requests.h"
#include "tests/support/server/tag_parser.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::output;

constexpr const char* kResponseTools = R"("tools":[{"type":"function","name":"f"}])";
constexpr const char* kCustomTools =
    R"("tools":[{"type":"custom","name":"edit"},{"type":"function","name":"f"},
       {"type":"namespace","name":"n","tools":[{"type":"custom","name":"run"}]}])";

class ResponsesAnswerTest : public testing::Test {
 protected:
  ResponsesAnswerTest() {
    test::parse_tags(api_.context);
    api_.context.responses = &store_;
    request_ = ask();
  }
  CompletionRequest ask(const std::string& members = {}) { return ask_with(kResponseTools, members); }
  CompletionRequest ask_with(const std::string& tools, const std::string& members = {},
                             const std::string& input = "\"hi\"") {
    return parse_responses_request(
        R"({"model":"small","input":)" + input + "," + tools + (members.empty() ? "" : ",") + members + "}",
        api_.context);
  }
  Json whole(const std::vector<RequestOutput>& outputs) {
    const auto answer = request_.dialect->answer(request_, {"resp_1", 1700000001}, api_.context, false);
    return Json::parse(test::body_of(*answer, outputs));
  }
  std::vector<Json> stream(const std::vector<RequestOutput>& outputs) {
    const auto answer = request_.dialect->answer(request_, {"resp_1", 1700000001}, api_.context, true);
    return test::split_named_events(test::stream_of(*answer, outputs));
  }
  /// Ids of items and calls are random: checks them and takes them out.
  static Json without_ids(Json response) {
    for (Json& item : response["output"]) {
      const std::string id = item["id"];
      const std::string type = item["type"];
      EXPECT_TRUE(id.starts_with(type == "message"            ? "msg_"
                                 : type == "reasoning"        ? "rs_"
                                 : type == "custom_tool_call" ? "ctc_"
                                                              : "fc_"))
          << id;
      EXPECT_TRUE(!type.ends_with("_call") || item["call_id"].get<std::string>().starts_with("call_"));
      item.erase("id");
      item.erase("call_id");
    }
    return response;
  }

  test::TestApi api_;
  ResponseStore store_{ResponseStore::Limits{}};
  CompletionRequest request_;
};

TEST_F(ResponsesAnswerTest, CallsOfANamespaceHaveBothNames) {
  request_ = parse_responses_request(
      R"({"model":"small","input":"hi","tools":[
          {"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]})",
      api_.context);
  const std::vector<RequestOutput> outputs{output(R"(<c:n__f>{"a":1}</c>)", {1, 2}, 2, FinishReason::stop)};
  const Json expected = Json::parse(
      R"([{"type":"function_call","name":"f","namespace":"n","arguments":"{\"a\":1}","status":"completed"}])");
  EXPECT_EQ(without_ids(whole(outputs))["output"], expected);
  const std::vector<Json> events = stream(outputs);
  EXPECT_EQ(without_ids(events.back()["response"])["output"], expected);
  for (const Json& event : events) {
    if (event["type"] == "response.output_item.added") {
      EXPECT_EQ(event["item"]["namespace"], "n");
    } else if (event["type"] == "response.function_call_arguments.done") {
      EXPECT_EQ(event["name"], "f");
    }
  }
}

TEST_F(ResponsesAnswerTest, AWholeAnswer) {
  const Json body = without_ids(whole(
      {test::with_cached(output(R"(<r>hm</r>Hello<c:f>{"a":1}</c>)", {1, 2, 3}, 3, FinishReason::stop), 4)}));
  EXPECT_EQ(body["output"], Json::parse(R"([
      {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}],"status":"completed"},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello","annotations":[],
       "logprobs":[]}],"status":"completed"},
      {"type":"function_call","name":"f","arguments":"{\"a\":1}","status":"completed"}])"));
  EXPECT_EQ(body["status"], "completed");
  EXPECT_EQ(body["object"], "response");
  EXPECT_TRUE(body["incomplete_details"].is_null());
  EXPECT_EQ(body["tools"], Json::parse(R"([{"type":"function","name":"f"}])"));
  Json usage = Json::parse(R"({"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},
      "output_tokens":3,"output_tokens_details":{"reasoning_tokens":0}})");
  usage["input_tokens"] = request_.prompts[0].size();
  usage["total_tokens"] = request_.prompts[0].size() + 3;
  EXPECT_EQ(body["usage"], usage);
}

TEST_F(ResponsesAnswerTest, TimingsStandBesideTheUsageIfAskedFor) {
  const std::vector<RequestOutput> outputs{
      test::with_times(output("ab", {1, 2}, 2, FinishReason::stop), 4, {1, 3, 1})};
  EXPECT_FALSE(whole(outputs).contains("timings"));
  request_ = ask(R"("timings_per_token":true)");
  const Json timings = whole(outputs)["timings"];
  EXPECT_EQ(timings["prompt_ms"], 20);
  EXPECT_EQ(timings["predicted_per_second"], 500);
  EXPECT_EQ(timings["draft_n_accepted"], 1);
  const std::vector<Json> events = stream(outputs);
  EXPECT_EQ(events.back()["response"]["timings"], timings);
  EXPECT_FALSE(events.front()["response"].contains("timings")) << "there are none yet";
}

TEST_F(ResponsesAnswerTest, AnAnswerThatIsCutIsIncomplete) {
  const Json body = whole({output("ab<c:f>{\"x", {1}, 1, FinishReason::length)});
  EXPECT_EQ(body["status"], "incomplete");
  EXPECT_EQ(body["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(body["output"][0]["status"], "completed");
  EXPECT_EQ(body["output"][1]["status"], "incomplete");
  EXPECT_EQ(body["output"][1]["arguments"], "{\"x");
}

TEST_F(ResponsesAnswerTest, AStreamsEvents) {
  const std::vector<Json> events =
      stream({output("<r>h", {1}, 1), output("m</r>a", {2}, 2), output("b<c:f>{}</c>", {3}, 3),
              output("", {4}, 4, FinishReason::stop)});
  std::vector<std::string> shown;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    std::string text = events[i]["type"];
    text.erase(0, std::string_view("response.").size());
    if (events[i].contains("output_index")) text += " " + events[i]["output_index"].dump();
    shown.push_back(text);
  }
  EXPECT_THAT(
      shown, testing::ElementsAre("created", "in_progress", "output_item.added 0", "content_part.added 0",
                                  "reasoning_text.delta 0", "reasoning_text.delta 0", "reasoning_text.done 0",
                                  "content_part.done 0", "output_item.done 0", "output_item.added 1",
                                  "content_part.added 1", "output_text.delta 1", "output_text.delta 1",
                                  "output_text.done 1", "content_part.done 1", "output_item.done 1",
                                  "output_item.added 2", "function_call_arguments.delta 2",
                                  "function_call_arguments.done 2", "output_item.done 2", "completed"));
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[0]["response"]["output"], Json::array());
  EXPECT_EQ(events[6]["text"], "hm");
  EXPECT_EQ(events[11]["delta"], "a");
  EXPECT_EQ(events[11]["item_id"], events[9]["item"]["id"]);
  EXPECT_EQ(events[16]["item"]["arguments"], "");
  EXPECT_EQ(events[16]["item"]["call_id"], events[19]["item"]["call_id"]);
  EXPECT_EQ(events[18]["arguments"], "{}");
}

/// The items that a client joins from the deltas.
Json joined_items(const std::vector<Json>& events) {
  Json items = Json::array();
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], items.size());
      items.push_back(event["item"]);
    } else if (type == "response.content_part.added") {
      items.back()["content"].push_back(event["part"]);
    } else if (type == "response.function_call_arguments.delta") {
      items.back()["arguments"] =
          items.back()["arguments"].get<std::string>() + event["delta"].get<std::string>();
    } else if (type == "response.custom_tool_call_input.delta") {
      EXPECT_FALSE(event["delta"].get<std::string>().empty());
      items.back()["input"] = items.back()["input"].get<std::string>() + event["delta"].get<std::string>();
    } else if (type == "response.custom_tool_call_input.done") {
      EXPECT_EQ(event["input"], items.back()["input"]);
      EXPECT_EQ(event["item_id"], items.back()["id"]);
    } else if (type.ends_with("_text.delta")) {
      Json& text = items.back()["content"].at(event["content_index"].get<size_t>())["text"];
      text = text.get<std::string>() + event["delta"].get<std::string>();
    } else if (type == "response.output_item.done") {
      items.back()["status"] = event["item"]["status"];
      EXPECT_EQ(items.back(), event["item"]);
    }
  }
  return items;
}

TEST_F(ResponsesAnswerTest, StreamsOfAnySplitAddUpToTheWhole) {
  std::mt19937 random(1);
  const std::string text = R"(<r>hm "x"</r>Hello <c:f>{"a":"<b>"}</c><c:f>{}</c>bye<r>again</r>)";
  for (int round = 0; round < 200; ++round) {
    const auto outputs =
        test::random_outputs(std::string_view(text).substr(0, 1 + random() % text.size()), random,
                             round % 3 == 0 ? FinishReason::length : FinishReason::stop);
    const std::vector<Json> events = stream(outputs);
    const Json last = events.back()["response"];
    EXPECT_EQ(joined_items(events), last["output"]);
    EXPECT_EQ(without_ids(last), without_ids(whole(outputs)));
  }
}

TEST_F(ResponsesAnswerTest, CallsOfCustomToolsBringATextInAnySplit) {
  request_ = ask_with(kCustomTools);
  const std::string text =
      R"(<c:edit>{"input": "+ \"é\\n\ud83d\ude00"}</c><c:f>{"input":"a"}</c><c:n__run>ls -l</c><c:edit>{"inp)";
  const Json expected = Json::parse(R"([
      {"type":"custom_tool_call","name":"edit","input":"+ \"é\\n😀","status":"completed"},
      {"type":"function_call","name":"f","arguments":"{\"input\":\"a\"}","status":"completed"},
      {"type":"custom_tool_call","name":"run","namespace":"n","input":"ls -l","status":"completed"},
      {"type":"custom_tool_call","name":"edit","input":"","status":"incomplete"}])");
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const auto outputs = test::random_outputs(text, random, FinishReason::length);
    const std::vector<Json> events = stream(outputs);
    const Json last = events.back()["response"];
    EXPECT_EQ(joined_items(events), last["output"]);
    EXPECT_EQ(without_ids(last)["output"], expected);
    EXPECT_EQ(without_ids(whole(outputs)), without_ids(last));
  }
}

TEST_F(ResponsesAnswerTest, AStreamedCallOfACustomTool) {
  request_ = ask_with(kCustomTools);
  const std::vector<Json> events =
      stream({output(R"(<c:edit>{"input)", {1}, 1), output(R"(": "a)", {2}, 2), output("\\", {3}, 3),
              output(R"(nb)", {4}, 4), output(R"("}</c>)", {5}, 5, FinishReason::stop)});
  std::vector<std::string> shown;
  for (const Json& event : events)
    shown.push_back(event["type"].get<std::string>() +
                    (event.contains("delta") ? event["delta"].dump() : ""));
  EXPECT_THAT(shown,
              testing::ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                                   "response.custom_tool_call_input.delta\"a\"",
                                   "response.custom_tool_call_input.delta\"\\nb\"",
                                   "response.custom_tool_call_input.done", "response.output_item.done",
                                   "response.completed"));
  Json added = events[2]["item"];
  EXPECT_EQ(added["input"], "");
  EXPECT_EQ(added["status"], "in_progress");
  EXPECT_EQ(events[3]["item_id"], added["id"]);
  EXPECT_EQ(events[3]["output_index"], 0);
  EXPECT_FALSE(events[3].contains("content_index"));
  EXPECT_EQ(events[5], (Json{{"type", "response.custom_tool_call_input.done"},
                             {"sequence_number", 5},
                             {"item_id", added["id"]},
                             {"output_index", 0},
                             {"input", "a\nb"}}));
  added["input"] = "a\nb";
  added["status"] = "completed";
  EXPECT_EQ(events[6]["item"], added);
}

TEST_F(ResponsesAnswerTest, CallsOfCustomToolsReadAlikeKeptAndSentBack) {
  for (const char* arguments : {R"({"input": "a\nb"})", "raw text"}) {
    request_ = ask_with(kCustomTools);
    const Json response =
        whole({output("<c:edit>" + std::string(arguments) + "</c>", {1}, 1, FinishReason::stop)});
    const Json item = response["output"][0];
    const Json result{{"type", "custom_tool_call_output"}, {"call_id", item["call_id"]}, {"output", "done"}};
    ask_with(kCustomTools, R"("previous_response_id":"resp_1")", Json::array({result}).dump());
    const auto kept = api_.rendered["messages"];
    ask_with(kCustomTools, {}, Json::array({Json{{"role", "user"}, {"content", "hi"}}, item, result}).dump());
    EXPECT_EQ(kept, api_.rendered["messages"]);
    EXPECT_EQ(kept[1]["tool_calls"][0]["function"]["arguments"]["input"].get<std::string>(),
              item["input"].get<std::string>());
    EXPECT_EQ(kept[2]["name"], "edit");
    store_.erase("resp_1");
  }
}

TEST_F(ResponsesAnswerTest, WholeAndStreamedAnswersAreKept) {
  const std::vector<RequestOutput> outputs{
      output(R"(<r>hm</r>Hi<c:f>{"a":1}</c>)", {1}, 1, FinishReason::stop)};
  for (const bool streams : {false, true}) {
    const Json response = streams ? stream(outputs).back()["response"] : whole(outputs);
    const auto kept = store_.find("resp_1");
    ASSERT_TRUE(kept);
    EXPECT_EQ(Json::parse(kept->body), response);
    Json history = Json::parse(*kept->history + "," + kept->answer + "]");
    EXPECT_EQ(history[1]["tool_calls"][0]["id"], response["output"][2]["call_id"]);
    history[1]["tool_calls"][0].erase("id");
    EXPECT_EQ(history, Json::parse(R"([{"role":"user","content":"hi"},{"role":"assistant","content":"Hi",
        "reasoning_content":"hm","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":1}}}]}])"));
    store_.erase("resp_1");
  }
  request_ = ask("\"store\":false");
  whole(outputs);
  EXPECT_FALSE(store_.find("resp_1"));
}

TEST_F(ResponsesAnswerTest, AFailureEndsTheStream) {
  const std::vector<Json> events =
      stream({output("a", {1}, 1), output("", {}, 1, FinishReason::cancelled), output("late", {2}, 2)});
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["status"], "failed");
  EXPECT_EQ(events.back()["response"]["error"]["message"], "The server has cancelled the request");
  EXPECT_FALSE(store_.find("resp_1"));
  const auto early = request_.dialect->answer(request_, {"resp_2", 1}, api_.context, true);
  std::string text;
  early->append_error(ApiError(500, "broken"), text);
  const std::vector<Json> alone = test::split_named_events(text);
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone[0]["type"], "error");
  EXPECT_EQ(alone[0]["message"], "broken");
}

}  // namespace
}  // namespace minfer
