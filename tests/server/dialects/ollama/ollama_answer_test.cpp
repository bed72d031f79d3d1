// Answers of /api/chat and /api/generate, whole and line by line, and the routes of Ollama's API.
#include <sstream>

#include <gmock/gmock.h>

#include "server/dialects/ollama/ollama.h"
#include "tests/support/server/answer_pieces.h"
#include "tests/support/server/api_requests.h"
#include "tests/support/server/tag_parser.h"
#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::output;
using testing::HasSubstr;

std::vector<Json> split_lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(Json::parse(line));
  return lines;
}

class OllamaAnswerTest : public testing::Test {
 protected:
  OllamaAnswerTest() {
    test::parse_tags(api_.context);
    use_chat();
  }
  void use_chat(const std::string& more = {}) {
    request_ = parse_ollama_chat(
        R"({"model":"small:latest","messages":[{"role":"user","content":"hi"}],"tools":[{"function":{"name":"f"}}])" +
            more + '}',
        api_.context);
  }
  void use_generate() {
    request_ = parse_ollama_generate(R"({"model":"small","prompt":"hi"})", api_.context);
  }
  Json whole(const std::vector<RequestOutput>& outputs) {
    const auto answer = request_.dialect->answer(request_, kIdentity, api_.context, false);
    return Json::parse(test::body_of(*answer, outputs));
  }
  std::vector<Json> stream(const std::vector<RequestOutput>& outputs) {
    const auto answer = request_.dialect->answer(request_, kIdentity, api_.context, true);
    const std::string text = test::stream_of(*answer, outputs);
    EXPECT_TRUE(text.empty() || text.ends_with('\n'));
    return split_lines(text);
  }
  /// The object that a client puts together from a stream.
  static Json joined(const std::vector<Json>& lines) {
    Json made = lines.back();
    Json& target = made.contains("message") ? made["message"] : made;
    const char* text_name = made.contains("message") ? "content" : "response";
    std::string text, thinking;
    Json calls = Json::array();
    for (const Json& line : lines) {
      EXPECT_EQ(line["done"], &line == &lines.back());
      const Json& part = line.contains("message") ? line["message"] : line;
      text += part[text_name].get<std::string>();
      thinking += part.value("thinking", "");
      for (const Json& call : part.value("tool_calls", Json::array()))
        calls.push_back(call);
    }
    target[text_name] = text;
    if (!thinking.empty()) target["thinking"] = thinking;
    if (!calls.empty()) target["tool_calls"] = calls;
    return made;
  }
  static Json without_ids(Json answer) {
    if (!answer.contains("message")) return answer;
    for (Json& call : answer["message"].value("tool_calls", Json::array()))
      EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
    if (answer["message"].contains("tool_calls"))
      for (Json& call : answer["message"]["tool_calls"])
        call.erase("id");
    return answer;
  }

  static inline const ResponseIdentity kIdentity{"ollama-1", 1700000001};
  test::TestApi api_;
  CompletionRequest request_;
};

TEST_F(OllamaAnswerTest, WholeAnswersHaveThoughtsTextAndCalls) {
  const std::vector<RequestOutput> outputs{test::with_times(
      output("<r>hm</r>text<c:f>{\"a\":1}</c><c:f>{}</c>", {1, 2, 3}, 3, FinishReason::stop), 4)};
  const Json answer = without_ids(whole(outputs));
  EXPECT_EQ(answer["message"],
            Json::parse(R"({"role":"assistant","content":"text","thinking":"hm","tool_calls":[
      {"function":{"index":0,"name":"f","arguments":{"a":1}}},{"function":{"index":1,"name":"f","arguments":{}}}]})"));
  EXPECT_EQ(answer["model"], "small:latest");
  EXPECT_EQ(answer["created_at"], "2023-11-14T22:13:21Z");
  EXPECT_EQ(answer["done"], true);
  EXPECT_EQ(answer["done_reason"], "stop");
  EXPECT_EQ(answer["prompt_eval_count"], request_.prompts[0].size());
  EXPECT_EQ(answer["eval_count"], 3);
  EXPECT_EQ(answer["total_duration"], answer["load_duration"].get<int64_t>() +
                                          answer["prompt_eval_duration"].get<int64_t>() +
                                          answer["eval_duration"].get<int64_t>());
  EXPECT_GT(answer["eval_duration"], 0);
}

TEST_F(OllamaAnswerTest, LinesJoinToTheWholeAnswer) {
  std::mt19937 random(5);
  for (const std::string text : {"<r>a b</r>some \"text\"\n", "<c:f>{\n\"a\":\r\n[1,2]}</c>",
                                 "x<c:f>{}</c>y<c:f>{\"b\":2}</c>", "plain", ""}) {
    for (const FinishReason finish : {FinishReason::stop, FinishReason::length}) {
      for (int round = 0; round < 8; ++round) {
        use_chat();
        const std::vector<RequestOutput> outputs = test::random_outputs(text, random, finish);
        EXPECT_EQ(without_ids(joined(stream(outputs))), without_ids(whole(outputs))) << text;
        use_generate();
        EXPECT_EQ(joined(stream(outputs)), whole(outputs)) << text;
      }
    }
  }
}

TEST_F(OllamaAnswerTest, LinesAreObjectsOfTheirOwn) {
  use_generate();
  const std::vector<Json> lines =
      stream({output("<r>hm</r>", {1}, 1), output("a", {2}, 2), output("b", {3}, 3, FinishReason::length)});
  ASSERT_EQ(lines.size(), 4u);
  const Json head{{"model", "small"}, {"created_at", "2023-11-14T22:13:21Z"}, {"done", false}};
  const auto line = [&](Json members) {
    members.update(head);
    return members;
  };
  EXPECT_EQ(lines[0], line({{"response", ""}, {"thinking", "hm"}}));
  EXPECT_EQ(lines[1], line({{"response", "a"}}));
  EXPECT_EQ(lines[2], line({{"response", "b"}}));
  EXPECT_EQ(lines[3]["response"], "");
  EXPECT_EQ(lines[3]["done_reason"], "length");
}

TEST_F(OllamaAnswerTest, ACallThatIsCutOffIsLeftOut) {
  const std::vector<RequestOutput> outputs{output("x<c:f>{\"a\":", {1}, 1),
                                           output("1", {2}, 2, FinishReason::length)};
  EXPECT_EQ(whole(outputs)["message"], Json::parse(R"({"role":"assistant","content":"x"})"));
  for (const Json& line : stream(outputs))
    EXPECT_FALSE(line["message"].contains("tool_calls"));
}

TEST_F(OllamaAnswerTest, ArgumentsAreAlwaysAnObject) {
  const std::vector<RequestOutput> outputs{output("<c:f>[1]</c>", {1}, 1, FinishReason::stop)};
  EXPECT_EQ(whole(outputs)["message"]["tool_calls"][0]["function"]["arguments"], Json::object());
}

TEST_F(OllamaAnswerTest, FailuresAreALine) {
  const std::vector<Json> lines =
      stream({output("a", {1}, 1), output("", {}, 1, FinishReason::error, "bro\xFFken")});
  ASSERT_EQ(lines.size(), 2u);
  ASSERT_EQ(lines[1].size(), 1u);
  EXPECT_THAT(lines[1]["error"].get<std::string>(), HasSubstr("bro"));
}

TEST_F(OllamaAnswerTest, AQuietStreamHasALineWithoutText) {
  const auto answer = request_.dialect->answer(request_, kIdentity, api_.context, true);
  EXPECT_EQ(split_lines(answer->idle_event()).at(0)["message"]["content"], "");
}

TEST_F(OllamaAnswerTest, TimingsComeIfAskedFor) {
  use_chat(R"(,"timings_per_token":true)");
  const std::vector<RequestOutput> outputs{test::with_times(output("ab", {1, 2}, 2, FinishReason::stop), 4)};
  EXPECT_EQ(whole(outputs)["timings"]["predicted_per_token_ms"], 2);
  EXPECT_EQ(stream(outputs).back()["timings"], whole(outputs)["timings"]);
}

TEST(OllamaRouteTest, LinesAndErrorsHaveTheirForm) {
  test::TestServer server;
  RawClient client = server.connect();
  const auto streamed =
      client.request("POST", "/api/generate", R"({"prompt":"a","options":{"num_predict":3}})");
  EXPECT_EQ(streamed.status, 200);
  EXPECT_EQ(streamed.header("content-type"), "application/x-ndjson");
  const std::vector<Json> lines = split_lines(streamed.body);
  EXPECT_EQ(lines.back()["done_reason"], "length");
  EXPECT_EQ(lines.back()["eval_count"], 3);
  const auto whole =
      client.request("POST", "/api/chat",
                     R"({"stream":false,"messages":[{"role":"user","content":"a"}],"keep_alive":5,
                                        "options":{"num_predict":2,"num_gpu":1}})");
  EXPECT_EQ(Json::parse(whole.body)["message"]["role"], "assistant") << whole.body;
  EXPECT_EQ(whole.header("content-type"), "application/json");
  EXPECT_EQ(whole.header("x-minfer-ignored-fields"), "keep_alive, options.num_gpu");
  const std::tuple<const char*, const char*, const char*, int> wrong[] = {
      {"POST", "/api/generate", "{", 400},
      {"POST", "/api/chat", R"({"model":"x"})", 404},
      {"POST", "/api/show", R"({"model":7})", 400},
      {"GET", "/api/chat", "", 405},
      {"POST", "/api/embed", "{}", 404},
      {"DELETE", "/api/tags", "", 405}};
  for (const auto& [method, path, body, status] : wrong) {
    RawClient another = server.connect();  // a refusal may end the connection
    const auto answer = another.request(method, path, body);
    EXPECT_EQ(answer.status, status) << path;
    EXPECT_TRUE(Json::parse(answer.body)["error"].is_string()) << answer.body;
  }
}

TEST(OllamaRouteTest, ModelsAreListed) {
  test::TestServer server;
  RawClient client = server.connect();
  const Json tags = Json::parse(client.request("GET", "/api/tags").body)["models"];
  ASSERT_EQ(tags.size(), 1u);
  EXPECT_EQ(tags[0]["name"], "scripted:latest");
  EXPECT_EQ(tags[0]["details"]["family"], "llama");
  EXPECT_GT(tags[0]["size"], 0);
  const Json running = Json::parse(client.request("GET", "/api/ps").body)["models"];
  EXPECT_EQ(running[0]["context_length"], 1024);
  EXPECT_EQ(Json::parse(client.request("GET", "/api/version").body)["version"], MINFER_VERSION);
  const Json shown = Json::parse(client.request("POST", "/api/show", R"({"model":"scripted:latest"})").body);
  EXPECT_EQ(shown["model_info"]["llama.context_length"], 1024);
}

}  // namespace
}  // namespace minfer
