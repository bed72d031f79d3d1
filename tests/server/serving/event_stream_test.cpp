// One text for all listeners: what is made, for whom, and the cost of listeners that do not read.
#include "server/http/event_stream.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "server/http/http_server.h"
#include "tests/support/server/raw_client.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// A server with nothing but events; each has its number, and they come as often as the loop gets to them.
class EventStreamTest : public testing::Test {
 protected:
  ~EventStreamTest() override {
    loop_.stop();
    thread_ = {};
    server_.reset();
  }
  void serve(const HttpLimits& limits = {}) {
    server_ = std::make_unique<HttpServer>(
        loop_,
        HttpServerOptions{.port = 0,
                          .limits = limits,
                          .on_finished =
                              [this](const HttpRequest&, const HttpOutcome& outcome) {
                                sent_bytes_ = outcome.sent_bytes;
                                aborted_ += outcome.aborted;
                                ++finished_;
                              }},
        [this](std::shared_ptr<HttpExchange> exchange) { stream_.add(std::move(exchange)); });
    thread_ = std::jthread([this] { loop_.run(); });
  }
  RawClient listen(std::string_view method = "GET") const {
    RawClient client(server_->port());
    client.send(RawClient::request_text(method, "/"));
    return client;
  }
  /// The result of `look` on the I/O thread.
  template <class Look>
  auto on_loop(Look look) {
    std::promise<decltype(look())> result;
    loop_.post([&] { result.set_value(look()); });
    return result.get_future().get();
  }
  bool wait_until_alone() {
    return test::wait_until([this] { return on_loop([this] { return stream_.num_clients(); }) == 0; });
  }

  std::string padding_;
  std::atomic<int> made_{0};
  std::atomic<int> finished_{0}, aborted_{0};
  std::atomic<uint64_t> sent_bytes_{0};
  EventLoop loop_;
  EventStream stream_{
      loop_, 1ms, [this](const EventStream::Ready& ready) {
        loop_.run_in_background([this, ready] {
          const int number = ++made_;
          loop_.post([this, ready, number] { ready("<" + std::to_string(number) + ">" + padding_); });
        });
      }};
  std::unique_ptr<HttpServer> server_;
  std::jthread thread_;
};

constexpr size_t kMostEvents = 100'000;

/// The text of the next whole event, from a stream without padding.
std::string next_event(RawClient& client) {
  const std::string text = client.receive_until(">\n\n");
  return text.substr(text.rfind("data: "));
}

TEST_F(EventStreamTest, AllWhoListenGetTheSame) {
  serve();
  RawClient first = listen();
  EXPECT_THAT(first.receive_until("\r\n\r\n"), HasSubstr("content-type: text/event-stream"));
  std::set<std::string> events{next_event(first)};
  EXPECT_EQ(*events.begin(), "data: <1>\n\n");
  // Each event was made once for all: later listeners get events that the first one also gets.
  for (int i = 0; i < 3; ++i) {
    RawClient other = listen();
    std::set<std::string> of_other;
    while (of_other.size() < 5)
      of_other.insert(next_event(other));
    while (!std::ranges::includes(events, of_other) && events.size() < kMostEvents)
      events.insert(next_event(first));
    EXPECT_THAT(events, testing::IsSupersetOf(of_other));
  }
}

TEST_F(EventStreamTest, NothingIsMadeWhileNobodyListens) {
  serve();
  EXPECT_EQ(made_, 0);
  {
    RawClient client = listen();
    next_event(client);
  }
  ASSERT_TRUE(wait_until_alone());
  const int made = on_loop([this] { return made_.load(); });
  std::this_thread::sleep_for(30ms);  // many intervals
  EXPECT_LE(made_, made + 1) << "but for one that was under way";
  const int stopped = made_;
  RawClient client = listen();
  next_event(client);
  EXPECT_GT(made_, stopped) << "and it begins again";
}

TEST_F(EventStreamTest, AClientThatDoesNotReadIsDroppedAndCostsLittle) {
  constexpr size_t kBuffer = 100'000, kEvent = 40'000;
  padding_ = std::string(kEvent, 'x');
  serve({.write_buffer_bytes = kBuffer,
         .socket_buffer_bytes = 16 << 10,
         .write_timeout = 300ms,
         .least_write_rate = 1u << 30});
  RawClient idle(server_->port());
  idle.set_receive_buffer(1024);
  idle.send(RawClient::request_text("GET", "/"));
  ASSERT_TRUE(test::wait_until([this] { return aborted_ == 1; }));
  EXPECT_LE(sent_bytes_, kBuffer + 2 * kEvent + (64u << 10)) << "with what the kernel took";
  EXPECT_TRUE(wait_until_alone());
}

TEST_F(EventStreamTest, TheEndEndsAllStreams) {
  serve();
  RawClient client = listen();
  next_event(client);
  on_loop([this] {
    stream_.end();
    return 0;
  });
  EXPECT_THAT(client.receive_until("\r\n0\r\n\r\n"), HasSubstr("0\r\n\r\n"));
  RawClient late = listen();
  EXPECT_EQ(late.response().body, "");
  EXPECT_TRUE(test::wait_until([this] { return finished_ == 2; }));
  EXPECT_EQ(aborted_, 0);
}

TEST_F(EventStreamTest, HeadIsAnsweredAtOnce) {
  serve();
  RawClient client = listen("HEAD");
  EXPECT_EQ(client.response(true).status, 200);
  EXPECT_TRUE(test::wait_until([this] { return finished_ == 1; }));
  EXPECT_EQ(made_, 0);
}

}  // namespace
}  // namespace minfer
