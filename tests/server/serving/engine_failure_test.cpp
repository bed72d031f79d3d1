// An engine that fails, or hangs, behind a server: every client is told, and /health tells everybody.
#include <gmock/gmock.h>

#include "tests/support/server/client_swarm.h"
#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;
using test::completion_body;
using test::completion_request;
using test::ScriptedServing;
using test::TestServer;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int32_t kManyTokens = 900;

std::vector<SwarmClient> streaming_and_waiting(size_t count) {
  std::vector<SwarmClient> clients;
  for (size_t i = 0; i < count; ++i) {
    const auto token = static_cast<TokenId>(5 + i);
    clients.push_back({.request = completion_request(completion_body({token}, kManyTokens, i % 2 == 0))});
  }
  return clients;
}

TEST(EngineFailureTest, AFaultReachesEveryClientWithinASecondAndEndsTheServer) {
  std::atomic<int64_t> failed_at{0};
  ScriptedServing serving;
  serving.engine.max_num_seqs = 8;  // the others are queued
  serving.before_step = [&](int64_t step) {
    std::this_thread::sleep_for(2ms);
    if (step < 60) return;
    failed_at = now_ns();
    throw DeviceError("an illegal memory access was encountered");
  };
  TestServer server(serving);
  RawClient idle = server.connect();
  EXPECT_EQ(idle.request("GET", "/health").status, 200);
  std::vector<SwarmClient> clients = streaming_and_waiting(24);
  run_swarm(server.port(), clients, 10s);
  size_t num_begun = 0;
  for (size_t i = 0; i < clients.size(); ++i) {
    const ReceivedResponse response = parse_response(clients[i].received);
    EXPECT_FALSE(clients[i].timed_out) << i;
    EXPECT_TRUE(response.complete) << i << clients[i].received;
    EXPECT_LT(clients[i].received_at_ns.back() - failed_at, 1'000'000'000) << i;
    EXPECT_THAT(response.body, HasSubstr("illegal memory access")) << i;
    if (response.status == 200) {
      ++num_begun;
      EXPECT_TRUE(parse_events(response.body).done) << i;
    } else {
      EXPECT_EQ(response.status, 500) << i;
    }
  }
  EXPECT_EQ(num_begun, 4u) << "the streams that had begun get an event, all others a status";
  EXPECT_FALSE(server.wait());
  EXPECT_LT(now_ns() - failed_at, 5'000'000'000);
}

TEST(EngineFailureTest, AfterAFaultHealthIsRedAndNewRequestsAreRefused) {
  ScriptedServing serving;
  serving.before_step = [](int64_t) { throw DeviceError("out of order"); };
  TestServer server(serving);
  RawClient first = server.connect(), second = server.connect(), third = server.connect();
  EXPECT_EQ(first.request("GET", "/health").status, 200);
  // Requests that have begun keep the server there for a moment.
  const std::string health = RawClient::request_text("GET", "/health");
  const std::string completion = completion_request(completion_body({5}, 3, false));
  second.send(health.substr(0, 20));
  third.send(completion.substr(0, 20));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(first.request("POST", "/v1/completions", completion_body({5}, 3, false)).status, 500);
  second.send(health.substr(20));
  third.send(completion.substr(20));
  const auto red = second.response();
  EXPECT_EQ(red.status, 503);
  EXPECT_THAT(red.body, HasSubstr("failed"));
  const auto refused = third.response();
  EXPECT_EQ(refused.status, 500);
  EXPECT_THAT(refused.body, HasSubstr("out of order"));
  EXPECT_FALSE(server.wait());
}

/// A server whose steps do not end as long as the test says so.
class HangTest : public testing::Test {
 protected:
  HangTest() {
    serving_.server.stall_timeout = 200ms;
    serving_.server.shutdown_timeout = 300ms;
    serving_.before_step = [this](int64_t) {
      do {
        std::this_thread::sleep_for(1ms);
      } while (hanging_);
    };
  }
  static int health(const TestServer& server) { return server.connect().request("GET", "/health").status; }
  static bool becomes(int status, const TestServer& server) {
    const Clock::time_point deadline = Clock::now() + 5s;
    while (health(server) != status && Clock::now() < deadline)
      std::this_thread::sleep_for(10ms);
    return health(server) == status;
  }

  std::atomic<bool> hanging_{false};
  ScriptedServing serving_;
};

TEST_F(HangTest, AStepThatHangsTurnsHealthRedAndItsEndGreenAgain) {
  TestServer server(serving_);
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(health(server), 200) << "idle for longer than the stall timeout";
  for (const bool is_first_step : {true, false}) {
    RawClient client = server.connect();
    hanging_ = is_first_step;
    client.send(completion_request(completion_body({5}, 200, true)));
    if (!is_first_step) client.receive_until("data: ");
    hanging_ = true;
    EXPECT_TRUE(becomes(503, server));
    hanging_ = false;
    EXPECT_TRUE(becomes(200, server));
    client.close();
    EXPECT_TRUE(server.wait_until_idle());
  }
}

TEST_F(HangTest, AServerWhoseEngineHangsSaysSoAndStillEnds) {
  TestServer server(serving_);
  RawClient client = server.connect();
  hanging_ = true;
  client.send(completion_request(completion_body({5}, 20, true)));
  EXPECT_TRUE(becomes(503, server));
  server.server().shut_down();
  EXPECT_EQ(client.response().status, 503);
  for (int i = 0; i < 1000 && !server.ended(); ++i)
    std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(server.ended());
  EXPECT_TRUE(server.server().engine_hangs());
  hanging_ = false;
  EXPECT_FALSE(server.wait());
}

}  // namespace
}  // namespace minfer
