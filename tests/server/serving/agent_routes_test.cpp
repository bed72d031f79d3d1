// The routes of /v1/messages and /v1/responses: keys, errors, kept responses.
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
