#include "server/http/http_server.h"

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>

#include "kernels/base/error.h"
#include "tests/support/server/client_swarm.h"
#include "tests/support/server/http_server_fixture.h"
#include "tests/support/server/raw_client.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;
using test::HttpServerTest;
using testing::HasSubstr;
using testing::StartsWith;

TEST_F(HttpServerTest, AnswersOneRequestAfterTheOtherOnAConnection) {
  echo();
  RawClient client = connect();
  for (int i = 0; i < 3; ++i) {
    const auto response = client.request("POST", fmt::format("/path?n={}", i), "body");
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, fmt::format("POST /path n={} [body]", i));
    EXPECT_THAT(response.header("x-request-id"), testing::Not(""));
  }
}

TEST_F(HttpServerTest, KeepsADecentRequestIdAndReplacesOthers) {
  echo();
  RawClient client = connect();
  EXPECT_EQ(client.request("GET", "/", "", "X-Request-Id: abc-1\r\n").header("x-request-id"), "abc-1");
  EXPECT_NE(client.request("GET", "/", "", "X-Request-Id: a\"b\r\n").header("x-request-id"), "a\"b");
  EXPECT_NE(client.request("GET", "/", "", "X-Request-Id: " + std::string(200, 'x') + "\r\n")
                .header("x-request-id"),
            std::string(200, 'x'));
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  echo();
  RawClient client = connect();
  client.send(RawClient::request_text("GET", "/1") + RawClient::request_text("POST", "/2", "two") +
              RawClient::request_text("GET", "/3"));
  EXPECT_EQ(client.response().body, "GET /1  []");
  EXPECT_EQ(client.response().body, "POST /2  [two]");
  EXPECT_EQ(client.response().body, "GET /3  []");
}

TEST_F(HttpServerTest, TakesARequestByteByByte) {
  echo();
  RawClient client = connect();
  for (const char c : RawClient::request_text("POST", "/slow", "abc"))
    ASSERT_TRUE(client.send({&c, 1}));
  EXPECT_EQ(client.response().body, "POST /slow  [abc]");
}

TEST_F(HttpServerTest, TakesAChunkedBodyAndExpectContinue) {
  echo();
  RawClient client = connect();
  client.send(
      "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.response().body, "POST /c  [abcde]");
  client.send("POST /e HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.receive_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_EQ(client.response().body, "POST /e  [ok]");
}

TEST_F(HttpServerTest, AnswersHeadWithoutABody) {
  echo();
  RawClient client = connect();
  const auto response = client.request("HEAD", "/x");
  EXPECT_EQ(response.header("content-length"), "11");
  EXPECT_EQ(client.request("GET", "/y").body, "GET /y  []");
}

TEST_F(HttpServerTest, ClosesAfterAnOldClientsRequest) {
  echo();
  RawClient client = connect();
  client.send("GET /old HTTP/1.0\r\n\r\n");
  const std::string all = client.receive_all();
  EXPECT_THAT(all, HasSubstr("connection: close"));
  EXPECT_THAT(all, HasSubstr("GET /old  []"));
}

TEST_F(HttpServerTest, StreamsInChunksOrToTheEndOfTheConnection) {
  serve([](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->begin_stream({.content_type = "text/event-stream"});
    exchange->write("one ");
    exchange->write("two");
    exchange->end();
  });
  RawClient client = connect();
  for (int i = 0; i < 2; ++i) {
    const auto response = client.request("GET", "/");
    EXPECT_EQ(response.header("transfer-encoding"), "chunked");
    EXPECT_EQ(response.body, "one two");
  }
  RawClient old = connect();
  old.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.receive_all(), testing::EndsWith("\r\n\r\none two"));
}

TEST_F(HttpServerTest, GivesUpOnSlowSenders) {
  echo({.header_timeout = 100ms, .body_timeout = 100ms, .idle_timeout = 1h});
  RawClient in_header = connect(), in_body = connect();
  in_header.send("GET / HTTP/1.1\r\nHos");
  in_body.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(in_header.response().status, 408);
  EXPECT_EQ(in_body.response().status, 408);
}

TEST_F(HttpServerTest, ClosesAConnectionThatIsIdleForLong) {
  echo({.idle_timeout = 100ms});
  RawClient idle = connect();
  EXPECT_EQ(idle.receive(), "");  // closed without a word
}

/// Rounds of a test for events that occur only at some moments.
class StopListeningTest : public HttpServerTest, public testing::WithParamInterface<int> {};

TEST_P(StopListeningTest, WhoConnectsThenIsAnsweredOrRefused) {
  echo();
  std::vector<SwarmClient> clients;
  for (int i = 0; i < 600; ++i) {
    clients.push_back({.request = RawClient::request_text("GET", "/", "", "Connection: close\r\n"),
                       .starts_after = std::chrono::milliseconds(i / 20)});
  }
  loop_.post_after(std::chrono::milliseconds(10 + GetParam()), [&] {
    server_->end_keep_alive();
    server_->stop_listening();
  });
  run_swarm(server_->port(), clients);
  for (const SwarmClient& client : clients) {
    EXPECT_TRUE(client.refused || parse_response(client.received).complete)
        << "reset " << client.was_reset << ", timed out " << client.timed_out << ", got " << client.received;
  }
}
INSTANTIATE_TEST_SUITE_P(Rounds, StopListeningTest, testing::Range(0, 6));

TEST_F(HttpServerTest, TellsTheHandlerThatTheClientWent) {
  std::atomic<int> come{0}, gone{0};
  std::shared_ptr<HttpExchange> held;
  serve([&](const std::shared_ptr<HttpExchange>& exchange) {
    held = exchange;
    exchange->on_closed([&] { ++gone; });
    if (exchange->request().path == "/stream") {
      exchange->begin_stream({});
      exchange->write("x");
    }
    ++come;
  });
  for (const char* path : {"/wait", "/stream"}) {
    for (const bool resets : {false, true}) {
      const int before = gone;
      RawClient client = connect();
      client.send(RawClient::request_text("GET", path));
      EXPECT_TRUE(test::wait_until([&] { return come == before + 1; }));
      if (std::string_view(path) == "/stream") client.receive_until("x");
      resets ? client.reset() : client.close();
      EXPECT_TRUE(test::wait_until([&] { return gone == before + 1; })) << path << " " << resets;
    }
  }
  // Answering after that does nothing.
  std::promise<void> answered;
  loop_.post([&] {
    EXPECT_TRUE(held->is_closed());
    held->write("y");
    held->end();
    held.reset();
    answered.set_value();
  });
  answered.get_future().wait();
  EXPECT_TRUE(wait_for_outcomes(4).back().aborted);
}

TEST_F(HttpServerTest, AClientThatClosesItsSendingHalfGetsItsAnswer) {
  std::vector<std::shared_ptr<HttpExchange>> held;
  std::atomic<size_t> num_held{0};
  std::atomic<int> gone{0};
  serve([&](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->on_closed([&] { ++gone; });
    if (exchange->request().path == "/stream") {
      exchange->begin_stream({});
      exchange->write("x");
    }
    held.push_back(exchange);
    ++num_held;
  });
  for (const char* version : {"1.1", "1.0"}) {
    for (const char* path : {"/wait", "/stream"}) {
      SCOPED_TRACE(fmt::format("{} {}", version, path));
      const size_t before = num_held;
      RawClient client = connect();
      client.send(fmt::format("GET {0} HTTP/{1}\r\nHost: h\r\n\r\nGET /next HTTP/{1}\r\nHost: h\r\n\r\n",
                              path, version));
      client.shut_sending();
      ASSERT_TRUE(test::wait_until([&] { return num_held == before + 1; }));
      // The server asks such a client whether it is still there.
      if (std::string_view(version) == "1.1") {
        EXPECT_NE(client.receive_until(std::string_view(path) == "/wait" ? "100 Continue\r\n\r\n" : "x\r\n0"),
                  "");
      }
      loop_.post([&] {
        const auto exchange = held.back();
        exchange->request().path == "/wait" ? exchange->respond({.body = "whole"}) : exchange->end();
      });
      if (std::string_view(path) == "/wait") {
        EXPECT_EQ(client.response().body, "whole");
      }
      if (std::string_view(version) == "1.0") {
        EXPECT_TRUE(client.receive_all().ends_with(std::string_view(path) == "/wait" ? "" : "x"));
        continue;
      }
      if (std::string_view(path) == "/stream") client.receive_until("\r\n\r\n");
      ASSERT_TRUE(test::wait_until([&] { return num_held == before + 2; })) << "the next request";
      loop_.post([&] { held.back()->respond({.body = "next"}); });
      EXPECT_EQ(client.response().body, "next");
      EXPECT_EQ(client.receive_all(), "");
    }
  }
  EXPECT_EQ(gone, 0);
}

TEST_F(HttpServerTest, GivesUpOnAReaderThatTakesNothing) {
  serve(
      [](const std::shared_ptr<HttpExchange>& exchange) {
        exchange->respond({.body = std::string(64 << 20, 'a')});
      },
      {.write_timeout = 100ms});
  RawClient client = connect();
  client.send(RawClient::request_text("GET", "/"));
  const auto outcomes = wait_for_outcomes(1);
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_TRUE(outcomes[0].aborted);
}

TEST_F(HttpServerTest, LimitsConnections) {
  std::vector<std::shared_ptr<HttpExchange>> held;
  std::atomic<int> num_held{0};
  serve(
      [&](const std::shared_ptr<HttpExchange>& exchange) {
        if (exchange->request().path != "/wait") return exchange->respond({});
        held.push_back(exchange);
        ++num_held;
      },
      {.max_connections = 2});
  RawClient first = connect(), second = connect();
  for (RawClient* client : {&first, &second}) {
    EXPECT_EQ(client->request("GET", "/").status, 200);
    client->send(RawClient::request_text("GET", "/wait"));
  }
  ASSERT_TRUE(test::wait_until([&] { return num_held == 2; }));
  std::vector<RawClient> beyond;
  for (int i = 0; i < 3; ++i) {
    beyond.push_back(connect());
    EXPECT_EQ(beyond.back().request("GET", "/").status, 503);
  }
  beyond.clear();
  first.close();
  EXPECT_TRUE(test::wait_until([&] { return num_connections() == 1; }));
  RawClient fourth = connect();
  EXPECT_EQ(fourth.request("GET", "/").status, 200);
  // It waits for nothing now, so it makes room for another client.
  RawClient fifth = connect();
  EXPECT_EQ(fifth.request("GET", "/").status, 200);
  EXPECT_EQ(fourth.receive_all(), "");
  EXPECT_FALSE(second.is_readable());
}

TEST_F(HttpServerTest, WhoConnectsBeyondTheLimitAndSaysNothingMakesRoomToo) {
  constexpr size_t kSpare = 4;
  std::vector<std::shared_ptr<HttpExchange>> held;
  std::atomic<int> num_held{0};
  serve(
      [&](const std::shared_ptr<HttpExchange>& exchange) {
        held.push_back(exchange);
        ++num_held;
      },
      {.max_connections = 1, .spare_connections = kSpare});
  RawClient busy = connect();
  busy.send(RawClient::request_text("GET", "/"));
  ASSERT_TRUE(test::wait_until([&] { return num_held == 1; }));
  std::vector<RawClient> silent;
  for (size_t i = 0; i < 3 * kSpare; ++i) {
    silent.push_back(connect());
    silent.back().send(i % 2 == 0 ? "" : "GET / HT");
  }
  EXPECT_EQ(connect().request("GET", "/").status, 503);
  EXPECT_LE(num_connections(), 1 + kSpare);
  EXPECT_FALSE(busy.is_readable());
}

TEST_F(HttpServerTest, CannotHaveAPortThatIsTaken) {
  echo();
  EventLoop other;
  try {
    const HttpServer server(other, {.port = server_->port()}, nullptr);
    FAIL() << "bound twice";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith(fmt::format("cannot bind to 127.0.0.1:{}", server_->port())));
  }
}

TEST(HttpRequest, FindsQueryValues) {
  HttpRequest request;
  request.query = "last=5&name=a%20b+c&flag&bad=%zz&end=%4";
  EXPECT_EQ(request.query_value("last"), "5");
  EXPECT_EQ(request.query_value("name"), "a b c");
  EXPECT_EQ(request.query_value("flag"), "");
  EXPECT_EQ(request.query_value("bad"), "%zz");
  EXPECT_EQ(request.query_value("end"), "%4");
  EXPECT_EQ(request.query_value("none"), "");
}

}  // namespace
}  // namespace minfer
