// Where a request ends: its line, headers, body, chunks and trailers.
#include <gmock/gmock.h>

#include "server/http/http_server.h"
#include "tests/support/server/http_server_fixture.h"

namespace minfer {
namespace {

using test::HttpServerTest;
using testing::HasSubstr;
using testing::StartsWith;

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

}  // namespace
}  // namespace minfer
