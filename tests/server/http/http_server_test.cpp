#include "server/http/http_server.h"

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>

#include "kernels/error.h"
#include "tests/support/server/client_swarm.h"
#include "tests/support/server/raw_client.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

/// A server whose handler the test gives, running on a thread of its own.
class HttpServerTest : public testing::Test {
 protected:
  void serve(HttpHandler handler, HttpLimits limits = {}) {
    server_ = std::make_unique<HttpServer>(
        loop_,
        HttpServerOptions{
            .port = 0,
            .limits = limits,
            .error_body = [](int status,
                             const std::string& message) { return fmt::format("{}: {}", status, message); },
            .on_finished =
                [this](const HttpRequest&, const HttpOutcome& outcome) {
                  const std::lock_guard lock(mutex_);
                  outcomes_.push_back(outcome);
                }},
        std::move(handler));
    thread_ = std::jthread([this] { loop_.run(); });
  }

  void echo(HttpLimits limits = {}) {
    serve(
        [](const std::shared_ptr<HttpExchange>& exchange) {
          const HttpRequest& request = exchange->request();
          exchange->respond({.content_type = "text/plain",
                             .body = fmt::format("{} {} {} [{}]", request.method, request.path, request.query,
                                                 request.body)});
        },
        limits);
  }

  void TearDown() override {
    loop_.stop();
    thread_ = {};
    server_.reset();
  }

  RawClient connect() { return RawClient(server_->port()); }

  std::vector<HttpOutcome> outcomes() {
    const std::lock_guard lock(mutex_);
    return outcomes_;
  }

  /// Waits until so many exchanges are over.
  std::vector<HttpOutcome> wait_for_outcomes(size_t count) {
    EXPECT_TRUE(test::wait_until([&] { return outcomes().size() >= count; }));
    return outcomes();
  }

  /// Of the server, as its I/O thread sees it.
  size_t num_connections() {
    std::promise<size_t> count;
    loop_.post([&] { count.set_value(server_->num_connections()); });
    return count.get_future().get();
  }

  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
  std::jthread thread_;
  std::mutex mutex_;
  std::vector<HttpOutcome> outcomes_;
};

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

TEST_F(HttpServerTest, RefusesWhatIsTooLargeOrNotHttp) {
  echo({.header_bytes = 1000, .body_bytes = 100});
  const auto send = [&](const std::string& bytes) {
    RawClient client = connect();
    client.send(bytes);
    const auto response = client.response();
    EXPECT_EQ(client.receive_all(), "");  // the connection ends
    return response;
  };
  EXPECT_EQ(send("GET / HTTP/1.1\r\nX: " + std::string(2000, 'a') + "\r\n\r\n").status, 431);
  EXPECT_EQ(send("GET /" + std::string(2000, 'a') + " HTTP/1.1\r\n\r\n").status, 431);
  const auto too_large = send("POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n" + std::string(101, 'b'));
  EXPECT_EQ(too_large.status, 413);
  EXPECT_EQ(too_large.body, "413: the body exceeds 100 bytes");
  EXPECT_EQ(send("POST / HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n").status, 413);
  EXPECT_EQ(send("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n").status, 400);
  EXPECT_EQ(send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string("100\r\n") +
                 std::string(256, 'c') + "\r\n0\r\n\r\n")
                .status,
            413);
  EXPECT_EQ(send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").status, 400);
  EXPECT_EQ(send("nonsense\r\n\r\n").status, 400);
  EXPECT_EQ(send(std::string("\0\1\2\3\r\n\r\n", 8)).status, 400);
  EXPECT_EQ(send("POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd").status, 400);
}

TEST_F(HttpServerTest, GivesUpOnSlowSenders) {
  echo({.header_timeout = 100ms, .body_timeout = 100ms, .idle_timeout = 1h});
  RawClient in_header = connect(), in_body = connect();
  in_header.send("GET / HTTP/1.1\r\nHos");
  in_body.send("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(in_header.response().status, 408);
  EXPECT_EQ(in_body.response().status, 408);
}

TEST_F(HttpServerTest, ClosesAConnectionThatIsIdleForLong) {
  echo({.idle_timeout = 100ms});
  RawClient idle = connect();
  EXPECT_EQ(idle.receive(), "");  // closed without a word
}

/// Rounds of what happens only at some moments.
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
    for (const int how : {0, 1, 2}) {
      const int before = gone;
      RawClient client = connect();
      client.send(RawClient::request_text("GET", path));
      EXPECT_TRUE(test::wait_until([&] { return come == before + 1; }));
      if (std::string_view(path) == "/stream") client.receive_until("x");
      if (how == 0) client.close();
      if (how == 1) client.reset();
      if (how == 2) client.shut_sending();
      EXPECT_TRUE(test::wait_until([&] { return gone == before + 1; })) << path << " " << how;
    }
  }
  // Answering then does nothing.
  std::promise<void> answered;
  loop_.post([&] {
    EXPECT_TRUE(held->is_closed());
    held->write("y");
    held->end();
    held.reset();
    answered.set_value();
  });
  answered.get_future().wait();
  EXPECT_TRUE(wait_for_outcomes(6).back().aborted);
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
  echo({.max_connections = 2});
  RawClient first = connect(), second = connect();
  EXPECT_EQ(first.request("GET", "/").status, 200);
  EXPECT_EQ(second.request("GET", "/").status, 200);
  RawClient third = connect();
  EXPECT_EQ(third.response().status, 503);
  third.close();
  first.close();
  EXPECT_TRUE(test::wait_until([&] { return num_connections() == 1; }));
  RawClient fourth = connect();
  EXPECT_EQ(fourth.request("GET", "/").status, 200);
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
