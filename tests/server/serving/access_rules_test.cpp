// Who may use the server: keys, host names, and web pages of other origins.
#include "server/routes/access_rules.h"

#include <atomic>
#include <fstream>
#include <future>

#include <gmock/gmock.h>

#include "kernels/base/error_types.h"
#include "tests/support/server/test_server.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

constexpr bool kLoopback = true;
constexpr bool kPublic = false;

HttpRequest request_with(HttpHeaders headers, const std::string& method = "GET") {
  HttpRequest request;
  request.method = method;
  request.path = "/v1/models";
  request.headers = std::move(headers);
  return request;
}

bool admits(const AccessRules& rules, const std::string& host, const std::string& origin = {}) {
  HttpHeaders headers{{"host", host}};
  if (!origin.empty()) headers.emplace_back("origin", origin);
  const auto error = rules.refusal_of_page(request_with(headers));
  EXPECT_EQ(error ? error->status() : 403, 403);
  return !error;
}

bool admits_key(const AccessRules& rules, const std::string& authorization) {
  const auto error = rules.refusal_of_key(request_with({{"authorization", authorization}}));
  EXPECT_EQ(error ? error->status() : 401, 401);
  return !error;
}

TEST(AccessRulesTest, AnyOfTheKeysLetsIn) {
  const AccessRules rules({.api_keys = {"one", "second-key"}}, kLoopback);
  EXPECT_TRUE(rules.needs_key());
  EXPECT_TRUE(admits_key(rules, "Bearer one"));
  EXPECT_TRUE(admits_key(rules, "Bearer second-key"));
  for (const char* right : {"bearer one", "BEARER one", "bEaReR   second-key"})
    EXPECT_TRUE(admits_key(rules, right)) << right;
  for (const char* wrong : {"Bearer on", "Bearer onee", "Bearer ", "Bearer", "one", "Bearer second-ke", "",
                            "Bearer oneone", "bearer one x", "Bearer one,second-key"}) {
    EXPECT_FALSE(admits_key(rules, wrong)) << wrong;
  }
  EXPECT_TRUE(rules.refusal_of_key(request_with({})));
  EXPECT_TRUE(admits_key(AccessRules({}, kLoopback), ""));
  EXPECT_THROW(AccessRules({.api_keys = {"one", ""}}, kLoopback), Error);
}

TEST(AccessRulesTest, AKeyMayComeInItsOwnHeader) {
  const AccessRules rules({.api_keys = {"one"}}, kLoopback);
  EXPECT_FALSE(rules.refusal_of_key(request_with({{"x-api-key", "one"}})));
  EXPECT_TRUE(rules.refusal_of_key(request_with({{"x-api-key", "two"}})));
  EXPECT_TRUE(rules.refusal_of_key(request_with({{"x-api-key", ""}})));
  EXPECT_FALSE(rules.refusal_of_key(request_with({{"authorization", "Bearer two"}, {"x-api-key", "one"}})))
      << "either may be right";
}

TEST(AccessRulesTest, KeysStandInAFileOneALine) {
  const test::TemporaryDirectory folder;
  const auto write = [&](const std::string& text) {
    const std::string path = (folder.path() / "keys").string();
    std::ofstream(path) << text;
    return path;
  };
  EXPECT_THAT(read_api_keys(write("# of the team\none\r\n\n  two # 2\t\n#three")),
              ElementsAre("one", "two # 2"));
  EXPECT_THROW(read_api_keys(write("# none\n\n")), Error);
  EXPECT_THROW(read_api_keys((folder.path() / "missing").string()), Error);
}

TEST(AccessRulesTest, OnLoopbackAServerIsReachedByItsNameOrAnAddress) {
  const AccessRules rules({}, kLoopback);
  for (const char* host : {"localhost", "LocalHost:8000", "127.0.0.1:8000", "[::1]:8000", "10.0.0.7:80", ""})
    EXPECT_TRUE(admits(rules, host)) << host;
  for (const char* host :
       {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", "1.2.3", "[evil]", "[::1"})
    EXPECT_FALSE(admits(rules, host)) << host;
}

TEST(AccessRulesTest, FurtherNamesCanBeAllowed) {
  const AccessRules rules({.allowed_hosts = {"LLM.corp.example:80", "box"}}, kLoopback);
  EXPECT_TRUE(admits(rules, "llm.corp.example"));
  EXPECT_TRUE(admits(rules, "BOX:8000"));
  EXPECT_TRUE(admits(rules, "localhost"));
  EXPECT_FALSE(admits(rules, "corp.example"));
  EXPECT_FALSE(admits(rules, "x.llm.corp.example"));
  EXPECT_TRUE(admits(AccessRules({.allowed_hosts = {"*"}}, kLoopback), "evil.example"));
}

TEST(AccessRulesTest, ElsewhereNamesAreCheckedOnceSomeAreGiven) {
  EXPECT_TRUE(admits(AccessRules({}, kPublic), "anything.example"));
  const AccessRules rules({.allowed_hosts = {"box"}}, kPublic);
  EXPECT_TRUE(admits(rules, "box"));
  EXPECT_TRUE(admits(rules, "192.168.1.5:8000")) << "probes ask by address";
  EXPECT_FALSE(admits(rules, "anything.example"));
}

TEST(AccessRulesTest, PagesOfOtherSitesAreKeptOut) {
  for (const bool where : {kLoopback, kPublic}) {
    const AccessRules rules({}, where);
    for (const char* origin : {"http://localhost:3000", "http://127.0.0.1:8000", "https://[::1]"})
      EXPECT_TRUE(admits(rules, "127.0.0.1:8000", origin)) << origin;
    for (const char* origin : {"http://evil.example", "null", "http://192.168.1.5:8000", "evil",
                               "http://localhost.evil.example", "file://"})
      EXPECT_FALSE(admits(rules, "127.0.0.1:8000", origin)) << origin;
    EXPECT_TRUE(admits(rules, "192.168.1.5:8000", "http://192.168.1.5:8000")) << "the server's own page";
    EXPECT_FALSE(admits(rules, "192.168.1.5:8000", "http://192.168.1.5:9000"));
    EXPECT_FALSE(admits(rules, "evil.example:8000", "http://evil.example:8000")) << "a name that was rebound";
  }
}

TEST(AccessRulesTest, AServerForOthersWithAKeyLeavesPagesToTheKey) {
  EXPECT_TRUE(admits(AccessRules({.api_keys = {"k"}}, kPublic), "box", "http://any.example"));
  EXPECT_FALSE(admits(AccessRules({.api_keys = {"k"}}, kLoopback), "localhost", "http://any.example"));
}

TEST(AccessRulesTest, PagesThatWereNamedMayAsk) {
  const AccessRules rules(
      {.allowed_hosts = {"llm.example"}, .cors_origins = {"HTTPS://app.example/", "null"}}, kLoopback);
  for (const char* origin : {"https://app.example", "https://App.example", "null", "https://llm.example"})
    EXPECT_TRUE(admits(rules, "127.0.0.1:8000", origin)) << origin;
  for (const char* origin : {"http://app.example", "https://app.example:8443", "https://app.example.evil"})
    EXPECT_FALSE(admits(rules, "127.0.0.1:8000", origin)) << origin;
  EXPECT_TRUE(admits(AccessRules({.cors_origins = {"*"}}, kLoopback), "localhost", "http://any.example"));
  for (const char* origin : {"app.example", "https://", "https://app.example/path", ""})
    EXPECT_THROW(AccessRules({.cors_origins = {origin}}, kLoopback), Error) << origin;
}

TEST(AccessRulesTest, AnswersSayWhichPagesMayReadThem) {
  const HttpRequest of_app = request_with({{"origin", "https://app.example"}});
  const HttpRequest of_other = request_with({{"origin", "https://other.example"}});
  EXPECT_THAT(AccessRules({}, kLoopback).cors_headers(of_app), IsEmpty());

  const AccessRules named({.cors_origins = {"https://app.example"}}, kLoopback);
  EXPECT_THAT(named.cors_headers(of_app),
              ElementsAre(Pair("vary", "origin"), Pair("access-control-allow-origin", "https://app.example"),
                          Pair("access-control-expose-headers", HasSubstr("x-request-id"))));
  EXPECT_THAT(named.cors_headers(of_other), ElementsAre(Pair("vary", "origin")));
  EXPECT_THAT(named.cors_headers(request_with({})), ElementsAre(Pair("vary", "origin")));
  EXPECT_THAT(AccessRules({.cors_origins = {"*"}}, kLoopback).cors_headers(of_other),
              ElementsAre(Pair("access-control-allow-origin", "*"),
                          Pair("access-control-expose-headers",
                               HasSubstr("x-minfer-ignored-fields, retry-after, server-timing"))));
}

// The same through a socket

TEST(CrossOriginTest, ABrowsersQuestionIsAnsweredWithoutAKeyAndTheRequestIsNot) {
  test::ScriptedServing serving;
  serving.server.access = {.api_keys = {"secret"}, .cors_origins = {"https://app.example"}};
  test::TestServer server(serving);
  const std::string origin = "Origin: https://app.example\r\n";
  const std::string asks = "Access-Control-Request-Method: POST\r\n";
  const auto preflight = server.connect().request(
      "OPTIONS", "/v1/chat/completions", {},
      origin + asks + "Access-Control-Request-Headers: authorization, content-type\r\n");
  EXPECT_EQ(preflight.status, 200);
  EXPECT_EQ(preflight.header("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(preflight.header("access-control-allow-methods"), "POST");
  EXPECT_EQ(preflight.header("access-control-allow-headers"), "authorization, content-type");
  EXPECT_EQ(preflight.header("vary"), "origin");

  const std::string body = test::completion_body({5}, 2, false);
  const auto without_key = server.connect().request("POST", "/v1/completions", body, origin);
  EXPECT_EQ(without_key.status, 401);
  EXPECT_EQ(without_key.header("access-control-allow-origin"), "https://app.example") << "so that it is read";
  for (const bool stream : {false, true}) {
    const auto answer =
        server.connect().request("POST", "/v1/completions", test::completion_body({5}, 2, stream),
                                 origin + "Authorization: Bearer secret\r\n");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.header("access-control-allow-origin"), "https://app.example");
  }

  EXPECT_EQ(server.connect().request("OPTIONS", "/v1/completions", {}, origin).status, 401)
      << "not a question";
  EXPECT_EQ(server.connect().request("OPTIONS", "/nowhere", {}, origin + asks).status, 200)
      << "so that the 404 is read";
  const auto other =
      server.connect().request("OPTIONS", "/v1/completions", {}, "Origin: https://other.example\r\n" + asks);
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(other.header("access-control-allow-origin"), "");
}

// A client without a key makes the server hold nothing.
TEST(HeadRefusalTest, WhatTheHeadSaysIsAnsweredBeforeTheBodyIsRead) {
  test::ScriptedServing serving;
  serving.server.access = {.api_keys = {"secret"}};
  test::TestServer server(serving);
  const std::string key = "x-api-key: secret\r\n", body = "Content-Length: 1000000\r\n";
  const auto answer = [&](const std::string& method_and_path, const std::string& lines) {
    RawClient client = server.connect();
    client.send(fmt::format("{} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", method_and_path, lines));
    auto response = client.response();
    EXPECT_EQ(response.header("connection"), "close") << method_and_path << lines;
    EXPECT_EQ(client.receive_all(), "");
    return response;
  };
  for (const char* lines : {"", "x-api-key: wrong\r\n", "Authorization: Bearer wrong\r\n"}) {
    EXPECT_EQ(answer("POST /v1/completions", body + lines).status, 401) << lines;
    EXPECT_EQ(answer("POST /v1/completions", std::string("Transfer-Encoding: chunked\r\n") + lines).status,
              401);
    EXPECT_EQ(answer("POST /v1/completions", body + lines + "Expect: 100-continue\r\n").status, 401);
  }
  EXPECT_EQ(answer("POST /nowhere", body).status, 401);
  EXPECT_EQ(answer("POST /nowhere", body + key).status, 404);
  EXPECT_EQ(answer("POST /health", body + key).header("allow"), "GET");
  EXPECT_EQ(answer("POST /v1/completions", body + key + "Origin: http://evil.example\r\n").status, 403);
  for (const char* coding : {"gzip", "Zstd", "identity, br"}) {
    const auto compressed =
        answer("POST /v1/completions", fmt::format("{}{}Content-Encoding: {}\r\n", body, key, coding));
    EXPECT_EQ(compressed.status, 415) << coding;
    EXPECT_EQ(compressed.header("accept-encoding"), "identity");
    EXPECT_THAT(compressed.body, HasSubstr(coding));
  }
  EXPECT_THAT(answer("POST /v1/messages", body).body, HasSubstr(R"("type":"error")"));
}

TEST(HeadRefusalTest, ABodyThatIsAsItStandsIsTaken) {
  test::TestServer server;
  const auto response = server.connect().request(
      "POST", "/v1/completions", test::completion_body({5}, 2, false), "Content-Encoding: Identity\r\n");
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(server.connect().request("POST", "/tokenize", "\x1f\x8b", "Content-Encoding: gzip\r\n").status,
            415);
}

TEST(HeadRefusalTest, AKeyInATrailerOpensNothing) {
  test::ScriptedServing serving;
  serving.server.access = {.api_keys = {"secret"}};
  test::TestServer server(serving);
  RawClient client = server.connect();
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
      "2\r\n{}\r\n0\r\nx-api-key: secret\r\n\r\n");
  EXPECT_EQ(client.response().status, 401);
}

TEST(HeadRefusalTest, AWholeUrlIsATargetAndItsHostIsTheOneThatCounts) {
  test::TestServer server;
  const auto status = [&](const std::string& target) {
    RawClient client = server.connect();
    client.send(fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", target, server.port()));
    return client.response().status;
  };
  EXPECT_EQ(status(fmt::format("http://127.0.0.1:{}/health", server.port())), 200);
  EXPECT_EQ(status("http://evil.example/health"), 403);
}

// While a client's grammar holds the cache's lock, or many are counted, no client's tokens wait.
TEST(MetricsTest, AreGatheredOffTheIoThread) {
  test::TestServer server;
  std::promise<void> end;
  const std::shared_future<void> is_over = end.get_future().share();
  std::atomic<int> num_taken{0};
  for (int i = 0; i < 2; ++i) {
    server.loop().run_in_background([&, is_over] {
      ++num_taken;
      is_over.wait();
    });
  }
  ASSERT_TRUE(test::wait_until([&] { return num_taken == 2; }));
  RawClient scraper = server.connect();
  scraper.send(RawClient::request_text("GET", "/metrics"));
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(server.connect().request("GET", "/health").status, 200);
  EXPECT_FALSE(scraper.is_readable());
  end.set_value();
  EXPECT_THAT(scraper.response().body, HasSubstr("minfer:http_connections"));
}

TEST(IgnoredFieldsTest, AreNamedInAHeaderOfWholeAndStreamedAnswers) {
  test::TestServer server;
  for (const bool stream : {false, true}) {
    const auto answer = server.connect().request(
        "POST", "/v1/completions", test::completion_body({5}, 2, stream, R"("temprature":1,"b\r\nc":2)"));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.header("x-minfer-ignored-fields"), "temprature, b??c");
  }
  const auto answer = server.connect().request("POST", "/tokenize", R"({"prompt":"a","x":1})");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.header("x-minfer-ignored-fields"), "x");
  const auto plain =
      server.connect().request("POST", "/v1/completions", test::completion_body({5}, 2, false));
  EXPECT_THAT(plain.head, Not(HasSubstr("ignored")));
}

TEST(IgnoredFieldsTest, AStrictServerRefusesThem) {
  test::ScriptedServing serving;
  serving.server.refuses_unknown_fields = true;
  test::TestServer server(serving);
  const auto answer = server.connect().request("POST", "/v1/completions",
                                               test::completion_body({5}, 2, false, R"("temprature":1)"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("temprature"));
  EXPECT_EQ(server.connect().request("POST", "/detokenize", R"({"tokens":[5],"x":1})").status, 400);
}

TEST(ServedNamesTest, AStarTakesAnyAndIsNoNameItself) {
  test::ScriptedServing serving;
  serving.server.served_model_names = {"mine", "*"};
  test::TestServer server(serving);
  const auto answer =
      server.connect().request("POST", "/v1/completions", R"({"model":"gpt-9","prompt":[5]})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr(R"("model":"gpt-9")"));
  const std::string models = server.connect().request("GET", "/v1/models").body;
  EXPECT_THAT(models, HasSubstr(R"("id":"mine")"));
  EXPECT_THAT(models, Not(HasSubstr("*")));
}

}  // namespace
}  // namespace minfer
