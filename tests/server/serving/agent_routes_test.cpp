// The routes of /v1/messages and /v1/responses: keys, errors, kept responses.
#include <future>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::ScriptedServing;
using test::TestServer;

ScriptedServing letters() {
  ScriptedServing serving;
  serving.script = [letter = test::letter_token()](int64_t) { return letter; };
  return serving;
}

TEST(AgentRoutesTest, AResponseIsKeptUntilItIsDeleted) {
  TestServer server(letters());
  RawClient client = server.connect();
  const auto ask = [&](const std::string& members) {
    return client.request(
        "POST", "/v1/responses",
        R"({"model":"scripted","max_output_tokens":4,"ignore_eos":true,"input":"hi")" + members + "}");
  };
  const Json first = Json::parse(ask("").body);
  const std::string id = first["id"];
  EXPECT_TRUE(id.starts_with("resp_"));
  EXPECT_EQ(first["output"][0]["content"][0]["text"].get<std::string>().size(), 4u);
  const auto read = client.request("GET", "/v1/responses/" + id);
  EXPECT_EQ(read.status, 200);
  EXPECT_EQ(Json::parse(read.body), first);
  const Json second = Json::parse(ask(R"(,"previous_response_id":")" + id + "\"").body);
  EXPECT_EQ(second["previous_response_id"], id);
  EXPECT_GT(second["usage"]["input_tokens"], first["usage"]["input_tokens"]);
  const auto deleted = client.request("DELETE", "/v1/responses/" + id);
  EXPECT_EQ(Json::parse(deleted.body), Json({{"id", id}, {"object", "response"}, {"deleted", true}}));
  for (const char* method : {"GET", "DELETE"})
    EXPECT_EQ(client.request(method, "/v1/responses/" + id).status, 404) << method;
  const auto lost = ask(R"(,"previous_response_id":")" + id + "\"");
  EXPECT_EQ(lost.status, 404);
  EXPECT_EQ(Json::parse(lost.body)["error"]["param"], "previous_response_id");
  const std::string unkept = Json::parse(ask(",\"store\":false").body)["id"];
  EXPECT_EQ(client.request("GET", "/v1/responses/" + unkept).status, 404);
}

/// A conversation with thoughts that the template does not show.
std::string long_conversation(size_t bytes) {
  return R"({"input":[{"role":"user","content":"hi"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":")" +
         std::string(bytes, 'a') +
         R"("}]},{"role":"assistant","content":"a"},{"role":"user","content":"b"}],"max_output_tokens":1})";
}

std::string next_turn(const std::string& id) {
  return R"({"input":"go on","max_output_tokens":2,"ignore_eos":true,"previous_response_id":")" + id + "\"}";
}

TEST(AgentRoutesTest, LongHistoriesAreReadOneAtATimeAndHoldUpNobody) {
  TestServer server(letters());
  const std::string id =
      Json::parse(server.connect().request("POST", "/v1/responses", long_conversation(100'000)).body)["id"];
  std::promise<void> its_end;
  server.loop().run_in_background([is_over = std::make_shared<std::future<void>>(
                                       its_end.get_future())] { is_over->wait_for(test::kPatience); },
                                  true);
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(server.connect());
    clients.back().send(RawClient::request_text("POST", "/v1/responses", next_turn(id)));
  }
  ASSERT_TRUE(server.wait_for_connections(clients.size()));
  EXPECT_EQ(
      server.connect().request("POST", "/v1/responses", R"({"input":"hi","max_output_tokens":1})").status,
      200);
  for (const RawClient& client : clients)
    EXPECT_FALSE(client.is_readable()) << "it waits for the one that takes long";
  its_end.set_value();
  for (RawClient& client : clients)
    EXPECT_EQ(client.response().status, 200);
}

TEST(AgentRoutesTest, LongHistoriesCountAsLongAsTheirRequestsRun) {
  test::StepGate gate;
  ScriptedServing serving = letters();
  serving.gate = &gate;
  serving.server.limits.body_bytes = 2 << 20;
  serving.server.limits.all_bodies_bytes = 3 << 20;
  TestServer server(serving);
  gate.open();
  const std::string id =
      Json::parse(server.connect().request("POST", "/v1/responses", long_conversation(1'600'000)).body)["id"];
  gate.shut();
  RawClient running = server.connect();
  running.send(RawClient::request_text("POST", "/v1/responses", next_turn(id)));
  ASSERT_TRUE(gate.wait_for_arrival());
  const auto refused = server.connect().request("POST", "/v1/responses", next_turn(id));
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(refused.header("retry-after"), "1");
  gate.open();
  EXPECT_EQ(running.response().status, 200);
  EXPECT_TRUE(test::wait_until(
      [&] { return server.connect().request("POST", "/v1/responses", next_turn(id)).status == 200; }));
}

TEST(AgentRoutesTest, IdsDoNotFollowFromTheClients) {
  TestServer server(letters());
  RawClient client = server.connect();
  const std::string body = R"({"model":"scripted","max_output_tokens":1,"input":"hi"})";
  const std::string header = "x-request-id: mine\r\n";
  const Json first = Json::parse(client.request("POST", "/v1/responses", body, header).body);
  const Json second = Json::parse(client.request("POST", "/v1/responses", body, header).body);
  EXPECT_NE(first["id"], second["id"]);
  EXPECT_THAT(first["id"].get<std::string>(), testing::Not(testing::HasSubstr("mine")));
}

TEST(AgentRoutesTest, ErrorsOfMessagesHaveAnthropicsForm) {
  ScriptedServing serving = letters();
  serving.server.access.api_keys = {"secret"};
  TestServer server(serving);
  RawClient client = server.connect();
  const auto type_of = [](const RawClient::Response& response) {
    const Json body = Json::parse(response.body);
    EXPECT_EQ(body["type"], "error");
    return body["error"]["type"].get<std::string>();
  };
  const std::string key = "x-api-key: secret\r\nanthropic-version: 2023-06-01\r\n";
  const std::string body =
      R"({"model":"scripted","max_tokens":3,"ignore_eos":true,"messages":[{"role":"user","content":"hi"}]})";
  EXPECT_EQ(type_of(client.request("POST", "/v1/messages", body)), "authentication_error");
  EXPECT_EQ(type_of(client.request("POST", "/v1/messages", "{}", key)), "invalid_request_error");
  EXPECT_EQ(type_of(client.request("POST", "/v1/messages", R"({"model":"x"})", key)), "not_found_error");
  EXPECT_EQ(type_of(client.request("POST", "/v1/messages/count_tokens", "{", key)), "invalid_request_error");
  EXPECT_EQ(type_of(client.request("GET", "/v1/messages", {}, key)), "invalid_request_error");
  const Json answer = Json::parse(client.request("POST", "/v1/messages", body, key).body);
  EXPECT_EQ(answer["usage"]["output_tokens"], 3);
  const auto count = client.request("POST", "/v1/messages/count_tokens", body, key);
  EXPECT_EQ(
      Json::parse(count.body)["input_tokens"],
      answer["usage"]["input_tokens"].get<int>() + answer["usage"]["cache_read_input_tokens"].get<int>());
}

}  // namespace
}  // namespace minfer
