// The effects of a client's pace: writers that wait for room, clients that take too little, and exchanges
// that outlive their connection on other threads.
#include <condition_variable>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>

#include "server/http/http_server.h"
#include "tests/support/server/raw_client.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;

constexpr auto kLongest = 120s;

/// Counts events on other threads, and waits for them.
class Count {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  bool wait_for(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLongest, [&] { return count_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

/// A server on its own thread, with the test's handler.
class HttpBackpressureTest : public testing::Test {
 protected:
  void serve(HttpHandler handler, const HttpLimits& limits = {}) {
    server_ =
        std::make_unique<HttpServer>(loop_,
                                     HttpServerOptions{.port = 0,
                                                       .limits = limits,
                                                       .on_finished =
                                                           [this](const auto&, const HttpOutcome& outcome) {
                                                             aborted_ = outcome.aborted;
                                                             finished_.add();
                                                           }},
                                     std::move(handler));
    thread_ = std::jthread([this] { loop_.run(); });
  }
  void TearDown() override { stop(); }
  void stop() {
    loop_.stop();
    thread_ = {};
    server_.reset();
  }
  RawClient connect() const { return RawClient(server_->port(), kLongest); }

  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
  std::jthread thread_;
  Count finished_;
  bool aborted_ = false;  ///< set for the latest exchange, by the I/O thread
};

TEST_F(HttpBackpressureTest, AWriterIsToldWhenTheClientHasTakenWhatItSent) {
  constexpr size_t kPieces = 1000, kPieceBytes = 10'000, kBufferBytes = 100'000;
  size_t num_written = 0, most_ahead = 0, ahead = 0;
  Count waits;
  std::function<void(const std::shared_ptr<HttpExchange>&)> feed = [&](const auto& exchange) {
    while (num_written < kPieces && exchange->has_room()) {
      exchange->write(std::string(kPieceBytes, 'a'));
      ++num_written;
      most_ahead = std::max(most_ahead, ahead += kPieceBytes);
    }
    if (num_written == kPieces) return exchange->end();
    waits.add();
    exchange->on_room([&feed, &ahead, exchange] {
      ahead = 0;
      feed(exchange);
    });
  };
  serve(
      [&](const std::shared_ptr<HttpExchange>& exchange) {
        exchange->begin_stream({});
        feed(exchange);
      },
      {.write_buffer_bytes = kBufferBytes, .socket_buffer_bytes = 16 << 10});
  RawClient client = connect();
  client.send(RawClient::request_text("GET", "/"));
  ASSERT_TRUE(waits.wait_for(1)) << "nothing is read before the writer has to wait";
  EXPECT_EQ(client.response().body, std::string(kPieces * kPieceBytes, 'a'));
  ASSERT_TRUE(finished_.wait_for(1));
  stop();
  EXPECT_FALSE(aborted_);
  EXPECT_LE(most_ahead, kBufferBytes + kPieceBytes);
}

TEST_F(HttpBackpressureTest, AClientThatTakesLittleAtATimeIsDropped) {
  constexpr size_t kBytes = 64u << 20, kTaken = 4096;
  serve([](const auto& exchange) { exchange->respond({.body = std::string(kBytes, 'a')}); },
        {.write_timeout = 300ms, .least_write_rate = 1u << 30});
  RawClient client = connect();
  client.set_receive_buffer(kTaken);
  client.send(RawClient::request_text("GET", "/"));
  size_t received = 0;
  for (std::string bytes = client.receive(); !bytes.empty(); bytes = client.receive()) {
    received += bytes.size();
    std::this_thread::sleep_for(5ms);  // takes some each time, long before the time-out
  }
  EXPECT_LT(received, kBytes);
  ASSERT_TRUE(finished_.wait_for(1));
  stop();
  EXPECT_TRUE(aborted_);
}

TEST_F(HttpBackpressureTest, AClientThatTakesAllThereIsIsKeptHoweverLittleThatIs) {
  std::shared_ptr<HttpExchange> held;
  serve(
      [&](const std::shared_ptr<HttpExchange>& exchange) {
        held = exchange;
        exchange->begin_stream({});
        exchange->write("little");
      },
      {.write_timeout = 100ms, .least_write_rate = 1u << 30});
  RawClient client = connect();
  client.send(RawClient::request_text("GET", "/"));
  client.receive_until("little");
  std::this_thread::sleep_for(1s);  // many time-outs, and sweeps that look for them
  loop_.post([&] { std::exchange(held, nullptr)->end(); });
  EXPECT_NE(client.receive_until("0\r\n\r\n"), "");
  ASSERT_TRUE(finished_.wait_for(1));
  stop();
  EXPECT_FALSE(aborted_);
}

TEST_F(HttpBackpressureTest, AnAnswerThatBreaksOffEndsTheConnection) {
  serve([](const auto& exchange) {
    exchange->begin_stream({});
    exchange->write("some");
    exchange->abort();
  });
  RawClient client = connect();
  client.send(RawClient::request_text("GET", "/"));
  EXPECT_EQ(client.receive_all().find("0\r\n\r\n"), std::string::npos);
  ASSERT_TRUE(finished_.wait_for(1));
  stop();
  EXPECT_TRUE(aborted_);
}

TEST_F(HttpBackpressureTest, AnExchangeIsDestroyedByTheIoThreadWhoeverDropsItLast) {
  std::thread::id io_thread, destroyed_on;
  Count begun, gone, destroyed;
  serve([&](const std::shared_ptr<HttpExchange>& exchange) {
    begun.add();
    io_thread = std::this_thread::get_id();
    const std::shared_ptr<int> probe(new int, [&](const int* value) {
      delete value;
      destroyed_on = std::this_thread::get_id();
      destroyed.add();
    });
    // A callback that is set after the client has gone is kept, and destroyed with the exchange.
    exchange->on_closed([&gone, probe, raw = exchange.get()] {
      raw->on_closed([probe] {});
      gone.add();
    });
    loop_.run_in_background([&gone, held = exchange]() mutable {
      gone.wait_for(1);
      while (held.use_count() > 1)
        std::this_thread::yield();
      held.reset();
    });
  });
  {
    RawClient client = connect();
    client.send(RawClient::request_text("POST", "/", "body"));
    ASSERT_TRUE(begun.wait_for(1));
  }
  ASSERT_TRUE(destroyed.wait_for(1));
  EXPECT_EQ(destroyed_on, io_thread);
}

// For the thread sanitizer: one thread returns the bodies' share of the budget, whichever thread reads them.
TEST_F(HttpBackpressureTest, WhatBodiesTakeOfTheBudgetIsGivenBackToTheLastByte) {
  constexpr int kClients = 4, kRounds = 50;
  constexpr size_t kLimit = 4 << 20;
  serve(
      [this](const std::shared_ptr<HttpExchange>& exchange) {
        loop_.run_in_background([this, exchange] {
          const size_t size = exchange->request().body.size();
          loop_.post([exchange, size] { exchange->respond({.body = std::to_string(size)}); });
        });
      },
      {.body_bytes = kLimit, .all_bodies_bytes = kLimit});
  std::vector<std::jthread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([this, i] {
      const std::string body(100'000, 'a');
      for (int round = 0; round < kRounds; ++round) {
        RawClient client = connect();
        if (round % 2 == i % 2) {
          EXPECT_EQ(client.request("POST", "/", body).body, "100000");
        } else {
          client.send(RawClient::request_text("POST", "/", body));  // and leaves
        }
      }
    });
  }
  clients.clear();
  ASSERT_TRUE(finished_.wait_for(kClients * kRounds));
  RawClient::Response response;
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  do {
    response = connect().request("POST", "/", std::string(kLimit, 'a'));
  } while (response.status == 503 && std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(response.body, std::to_string(kLimit)) << "it needs all of the budget";
}

}  // namespace
}  // namespace minfer
