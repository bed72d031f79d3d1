#include "server/http/http_server.h"

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>

#include "kernels/base/error.h"
#include "tests/support/server/client_swarm.h"
#include "tests/support/server/raw_client.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

/// A server on its own thread, with the test's handler.
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

  /// Waits until that many exchanges are over.
  std::vector<HttpOutcome> wait_for_outcomes(size_t count) {
    EXPECT_TRUE(test::wait_until([&] { return outcomes().size() >= count; }));
    return outcomes();
  }

  /// The server's number, from its I/O thread.
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
  EXPECT_EQ(send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string("100\r\n") +
                 std::string(256, 'c') + "\r\n0\r\n\r\n")
                .status,
            413);
  EXPECT_EQ(send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").status, 400);
  EXPECT_EQ(send("nonsense\r\n\r\n").status, 400);
  EXPECT_EQ(send(std::string("\0\1\2\3\r\n\r\n", 8)).status, 400);
  EXPECT_EQ(send("POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd").status, 400);
}

/// A head with these lines after its first, an empty chunked body, and another request that must not be answered.
std::string smuggling(const std::string& lines, const std::string& first = "POST / HTTP/1.1") {
  return fmt::format("{}\r\n{}\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n", first, lines);
}

// RFC 9112, sections 3.2 and 6.3: if two readers may see the end of a request in different places, the request is invalid.
TEST_F(HttpServerTest, ARequestWhoseEndIsNotSureEndsItsConnection) {
  echo();
  const std::string host = "Host: h\r\n", chunked = "Transfer-Encoding: chunked\r\n";
  const auto expect = [&](int status, const std::string& request) {
    RawClient client = connect();
    client.send(request);
    const auto response = client.response();
    EXPECT_EQ(response.status, status) << request << "\n-> " << response.body;
    EXPECT_EQ(response.header("connection"), "close") << request;
    EXPECT_EQ(client.receive_all(), "") << request;
  };
  for (const char* coding : {"xchunked", "identity", "chunked, identity", "chunked, chunked", "chunked;q=1",
                             "gzip", "", ",", "chunked,", "chunked gzip"})
    expect(400, smuggling(fmt::format("{}Transfer-Encoding: {}\r\n", host, coding)));
  expect(501, smuggling(host + "Transfer-Encoding: gzip, chunked\r\n"));
  expect(501, smuggling(host + "Transfer-Encoding: gzip\r\n" + chunked));
  expect(400, smuggling(host + chunked + chunked));
  expect(400, smuggling(host + "Transfer-Encoding: identity\r\nContent-Length: 0\r\n"));
  expect(400, smuggling(host + "Content-Length: 0\r\n" + chunked));
  expect(400, smuggling(host + chunked + "Content-Length: 0\r\n"));
  expect(400, smuggling(chunked, "POST / HTTP/1.0"));
  for (const char* length :
       {"0\r\nContent-Length: 0", "0\r\nContent-Length: 5", "0, 0", "0,5", "+0", "-0", "0x0", ""})
    expect(400, smuggling(fmt::format("{}Content-Length: {}\r\n", host, length)));
  expect(400, smuggling(chunked));
  expect(400, smuggling("Host: h\r\nHost: h\r\n" + chunked));
  expect(400, smuggling("Host: h\r\nHost: g\r\n" + chunked));
  expect(400, "GET / HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n");
  for (const char* bad : {"a b", "a,b", "a/b", "user@h", "a?b", "h\tg"})
    expect(400, smuggling(fmt::format("Host: {}\r\n{}", bad, chunked)));
  std::string many = "GET / HTTP/1.1\r\nHost: h\r\n";
  for (int i = 0; i < 1000; ++i)
    many += "a:\r\n";
  expect(431, many + "\r\n");

  RawClient good = connect();
  good.send("POST /1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n");
  EXPECT_EQ(good.response().body, "POST /1  []");
  good.send("GET /2 HTTP/1.1\r\nHost:\r\n\r\n");
  EXPECT_EQ(good.response().body, "GET /2  []");
  good.send("GET /3 HTTP/1.0\r\n\r\n");
  EXPECT_EQ(good.response().body, "GET /3  []");
}

TEST_F(HttpServerTest, ATargetMayBeAWholeUrlWhoseHostCounts) {
  serve([](const std::shared_ptr<HttpExchange>& exchange) {
    const HttpRequest& request = exchange->request();
    exchange->respond({.body = fmt::format("{} {} {}", request.header("host"), request.path, request.query)});
  });
  RawClient client = connect();
  const auto answer = [&](const std::string& target) {
    client.send(fmt::format("GET {} HTTP/1.1\r\nHost: other\r\n\r\n", target));
    return client.response().body;
  };
  EXPECT_EQ(answer("http://h:80/path?q=1"), "h:80 /path q=1");
  EXPECT_EQ(answer("HTTPS://h"), "h / ");
  EXPECT_EQ(answer("http://[::1]:8000?q"), "[::1]:8000 / q");
  EXPECT_EQ(answer("/http://h/path"), "other /http://h/path ");
  for (const char* target :
       {"http:///path", "http://user@h/", "http:/path", "ftp://h/", "path", "h:80", "?q"}) {
    RawClient wrong = connect();
    wrong.send(fmt::format("GET {} HTTP/1.1\r\nHost: other\r\n\r\n", target));
    EXPECT_EQ(wrong.response().status, 400) << target;
  }
}

TEST_F(HttpServerTest, TrailersAreNoHeaders) {
  serve([](const std::shared_ptr<HttpExchange>& exchange) {
    const HttpRequest& request = exchange->request();
    exchange->respond({.body = fmt::format("{}[{}]", request.body, request.header("x-api-key"))});
  });
  RawClient client = connect();
  client.send(
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "1\r\na\r\n0\r\nX-Api-Key: secret\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.response().body, "a[]");
  EXPECT_EQ(client.request("GET", "/").body, "[]");
}

TEST_F(HttpServerTest, TrailersAndChunkExtensionsHaveTheLimitOfHeaders) {
  constexpr size_t kLimit = 2000;
  echo({.header_bytes = kLimit});
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  const auto answer = [&](const std::string& body) {
    RawClient client = connect();
    client.send(head + body);
    return client.response();
  };
  const std::string some(kLimit / 4, 'x'), much(2 * kLimit, 'x');
  EXPECT_EQ(answer("1;" + some + "\r\na\r\n0\r\nT: " + some + "\r\n\r\n").body, "POST /  [a]");
  EXPECT_EQ(answer("0\r\nT: " + much).status, 431);  // none of these ends
  EXPECT_EQ(answer("0;" + much).status, 431);
  EXPECT_EQ(answer("1;" + much).status, 431);
  EXPECT_EQ(answer(std::string(2 * kLimit, '0')).status, 431);
  std::string chunks;
  for (int i = 0; i < 5; ++i)
    chunks += "1;" + some + "\r\na\r\n";
  EXPECT_EQ(answer(chunks).status, 431);  // each is small, but together they are not
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
