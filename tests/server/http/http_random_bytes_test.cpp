// Thousands of requests with random damage, in pieces of any size: each gets valid HTTP answers, and its
// connection ends.
#include <random>

#include <gtest/gtest.h>

#include "tests/support/random_operations.h"
#include "tests/support/server/client_swarm.h"
#include "tests/support/server/http_driver.h"

namespace minfer {
namespace {

const std::vector<std::string> kWholeRequests{
    "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n{\"prompt\":1}",
    "POST http://h/a?b=c%20d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
    "chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: "
    "v\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
    "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "HEAD /stream HTTP/1.1\r\nHost: h\r\nX-Request-Id: abc\r\nConnection: close\r\n\r\n",
    "GET /stream HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
};

std::string damaged(std::string text, std::mt19937& random) {
  const std::string tokens[] = {"\r\n",
                                "\r\n\r\n",
                                ":",
                                " ",
                                "\0",
                                "-1",
                                "99999999999999999999",
                                "chunked",
                                "\xff",
                                "HTTP/1.1",
                                "Content-Length: 3\r\n",
                                "Transfer-Encoding: identity\r\n",
                                "Host: g\r\n",
                                "0\r\n\r\n",
                                "\n",
                                "%zz"};
  for (auto damage = random() % 4; damage > 0 && !text.empty(); --damage) {
    const size_t at = random() % text.size();
    switch (random() % 5) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 8);
        break;
      case 2:
        text.insert(at, tokens[random() % std::size(tokens)]);
        break;
      case 3:
        text.resize(at);
        break;
      default:
        text.insert(at, std::string(random() % 3000, static_cast<char>('a' + random() % 3)));
    }
  }
  return text;
}

void answer(const std::shared_ptr<HttpExchange>& exchange) {
  if (exchange->request().path != "/stream") return exchange->respond({.body = exchange->request().body});
  exchange->begin_stream({.content_type = "text/event-stream"});
  exchange->write("data: 1\n\n");
  exchange->write("data: 2\n\n");
  exchange->end();
}

TEST(HttpRandomBytesTest, DamagedRequestsAreAnsweredInHttpAndTheirConnectionsEnd) {
  const int64_t count = test::num_random_operations() / 20;
  std::mt19937 random(static_cast<uint32_t>(test::first_seed()));
  HttpDriver server({.header_bytes = 2000, .body_bytes = 1000, .write_buffer_bytes = 1 << 20}, answer);
  int64_t num_good = 0, num_refused = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::string input;
    for (auto parts = 1 + random() % 3; parts > 0; --parts)
      input += damaged(kWholeRequests[random() % kWholeRequests.size()], random);
    const size_t piece_bytes = random() % 4 == 0 ? 1 + random() % 50 : 0;
    const std::string received = server.answers_to(input, piece_bytes);
    if (received.empty()) continue;
    ASSERT_TRUE(received.starts_with("HTTP/1.1 ")) << i << ": " << input << "\n-> " << received;
    const int status = std::stoi(received.substr(9, 3));
    num_good += status == 200 || status == 100;
    num_refused += status == 400 || status == 413 || status == 431 || status == 501;
  }
  EXPECT_GT(num_good, count / 10);
  EXPECT_GT(num_refused, count / 10);
}

}  // namespace
}  // namespace minfer
