#include "server/bench/http_client.h"

#include <gmock/gmock.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"

namespace minfer {
namespace {

using testing::HasSubstr;

constexpr int64_t kPatienceNs = 120'000'000'000;  ///< more than any resolver takes

TEST(HttpClient, RefusesWhatIsNoServersUrl) {
  for (const char* url :
       {"", "localhost:8000", "ftp://x", "http://", "http://:80", "http://a:65536", "http://a:8x",
        "http://[::1", "http://u@a", "http://a/?q", "http://a/#f", "http://a/b c", "http://a\r\nX: y"}) {
    try {
      HttpClient client(url);
      ADD_FAILURE() << url;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("http[s]://HOST[:PORT][/PATH]")) << url;
    }
  }
  for (const char* url : {"http://a", "https://a:8443/b/", "http://[::1]:65535/a", "http://[fe80::1]"})
    EXPECT_NO_THROW(HttpClient client(url)) << url;
}

/// Stops the client with the end of its request.
struct End : HttpResponseHandler {
  explicit End(HttpClient& of) : client(of) {}
  void on_status(int) override {}
  void on_body(std::string_view, int64_t) override {}
  void on_end(const std::string& reason) override {
    error = reason;
    client.stop();
  }
  HttpClient& client;
  std::string error = "none";
};

TEST(HttpClient, NamesWhyNoAnswerCame) {
  HttpClient refused("http://127.0.0.1:1");
  End end(refused);
  refused.send({"/", {}}, end);
  refused.run_until(now_ns() + kPatienceNs);
  EXPECT_EQ(end.error, "connection refused");

  HttpClient unknown("http://no-such-host.invalid");
  End other(unknown);
  unknown.send({"/", {}}, other);
  unknown.run_until(now_ns() + kPatienceNs);
  EXPECT_THAT(other.error, HasSubstr("host"));
}

TEST(HttpClient, AbortedRequestsEndOnce) {
  HttpClient client("http://127.0.0.1:1");
  End end(client);
  client.send({"/", {}}, end);
  client.abort(end, "timed out");
  EXPECT_EQ(end.error, "timed out");
  end.error = "once";
  client.abort(end, "again");
  client.run_until(now_ns() + 50'000'000);
  EXPECT_EQ(end.error, "once");
}

}  // namespace
}  // namespace minfer
