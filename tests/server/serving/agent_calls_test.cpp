// The requests of agents, to a server whose model thinks and calls a function: its format is found in the text, in each API.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/server/answer_pieces.h"
#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::ScriptedServing;
using test::TestServer;
using testing::HasSubstr;

constexpr const char* kCallsAnswer =
    "<think>Ulm is a town.</think>Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
    "{\"town\": \"Ulm\"}}\n</tool_call>";
constexpr const char* kArguments = R"({"town": "Ulm"})";

/// Answers kCallsAnswer to a prompt of any length, one token a byte.
class AgentCallsTest : public testing::Test {
 protected:
  AgentCallsTest() {
    const auto tokenizer = test::open_scripted_model()->make_tokenizer();
    for (const char c : std::string_view(kCallsAnswer))
      tokens_.push_back(token_of(*tokenizer, c));
    end_ = tokenizer->end_tokens()[0];
    ScriptedServing serving;
    serving.server.answer_format = {.tool_call_parser = "hermes", .reasoning_parser = "think"};
    serving.script = [this](int64_t position) {
      const int64_t place = position - prompt_tokens_;
      return place >= 0 && place < static_cast<int64_t>(tokens_.size()) ? tokens_[static_cast<size_t>(place)]
                                                                        : end_;
    };
    server_ = std::make_unique<TestServer>(serving);
  }
  static TokenId token_of(const Tokenizer& tokenizer, char c) {
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
      if (!tokenizer.is_control(id) && tokenizer.piece(id) == std::string_view(&c, 1)) return id;
    throw std::logic_error("no token for a byte");
  }
  std::string ask(const std::string& path, const std::string& conversation, const std::string& more) {
    RawClient client = server_->connect();
    // The answer begins behind the prompt, whose length the first of two requests tells.
    const std::string body = "{\"model\":\"scripted\"," + conversation + more + "}";
    prompt_tokens_ = 100'000;
    const Json first = Json::parse(
        client.request("POST", path, "{\"model\":\"scripted\"," + conversation + without_stream(more) + "}")
            .body);
    const Json& usage = first["usage"];
    prompt_tokens_ = usage.contains("prompt_tokens") ? usage["prompt_tokens"].get<int64_t>()
                                                     : usage["input_tokens"].get<int64_t>() +
                                                           usage.value("cache_read_input_tokens", int64_t{0});
    return client.request("POST", path, body).body;
  }
  static std::string without_stream(std::string more) {
    if (const size_t found = more.find(",\"stream\":true"); found != std::string::npos) more.erase(found, 14);
    return more;
  }

  std::vector<TokenId> tokens_;
  TokenId end_ = 0;
  std::atomic<int64_t> prompt_tokens_ = 0;
  std::unique_ptr<TestServer> server_;
};

TEST_F(AgentCallsTest, ChatsHaveCallsAndReasoning) {
  const std::string chat =
      std::string(R"("messages":[{"role":"user","content":"hi"}],"temperature":0,)") + test::kChatTools;
  const Json answer = Json::parse(ask("/v1/chat/completions", chat, ""));
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls") << answer;
  EXPECT_EQ(choice["message"]["reasoning_content"], "Ulm is a town.");
  EXPECT_THAT(choice["message"]["content"].get<std::string>(), HasSubstr("Let me look."));
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "get_weather");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], kArguments);
  EXPECT_GT(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 10);
  const std::string events = ask("/v1/chat/completions", chat, ",\"stream\":true");
  EXPECT_THAT(events, HasSubstr(R"("finish_reason":"tool_calls")"));
  EXPECT_THAT(events, HasSubstr(R"("name":"get_weather")"));
  const std::string plain = ask("/v1/chat/completions", chat, R"(,"tool_choice":"none")");
  EXPECT_THAT(Json::parse(plain)["choices"][0]["message"]["content"].get<std::string>(),
              HasSubstr("<tool_call>"));
}

TEST_F(AgentCallsTest, MessagesHaveBlocks) {
  const std::string conversation =
      R"("messages":[{"role":"user","content":"hi"}],"max_tokens":200,"temperature":0,
         "tools":[{"name":"get_weather","input_schema":{"type":"object"}}])";
  const Json answer = Json::parse(ask("/v1/messages", conversation, ""));
  ASSERT_EQ(answer["content"].size(), 3u) << answer;
  EXPECT_EQ(answer["content"][0]["thinking"], "Ulm is a town.");
  EXPECT_EQ(answer["content"][2]["name"], "get_weather");
  EXPECT_EQ(answer["content"][2]["input"], Json::parse(kArguments));
  EXPECT_EQ(answer["stop_reason"], "tool_use");
  std::string input;
  for (const Json& event : test::split_named_events(ask("/v1/messages", conversation, ",\"stream\":true")))
    if (event["type"] == "content_block_delta") input += event["delta"].value("partial_json", "");
  EXPECT_EQ(input, kArguments);
}

TEST_F(AgentCallsTest, ResponsesHaveItems) {
  const std::string conversation =
      R"("input":"hi","temperature":0,"tools":[{"type":"function","name":"get_weather"}])";
  const Json answer = Json::parse(ask("/v1/responses", conversation, ""));
  ASSERT_EQ(answer["output"].size(), 3u) << answer;
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "Ulm is a town.");
  EXPECT_EQ(answer["output"][2]["arguments"], kArguments);
  const auto events = test::split_named_events(ask("/v1/responses", conversation, ",\"stream\":true"));
  EXPECT_EQ(events.back()["type"], "response.completed");
  EXPECT_EQ(events.back()["response"]["output"][2]["arguments"], kArguments);
}

}  // namespace
}  // namespace minfer
