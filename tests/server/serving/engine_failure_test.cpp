// A server whose engine fails or hangs: every client is told, and /health tells everybody.
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

/// The place at which the engine learns of a device's fault.
struct Fault {
  const char* name;
  int32_t steps_ahead;
  bool in_finish;  ///< when it takes a step's tokens, not when it launches the step
};

class EngineFailureTest : public testing::TestWithParam<Fault> {
 protected:
  EngineFailureTest() {
    serving_.engine.steps_ahead = GetParam().steps_ahead;
    serving_.server.closing_timeout = test::kPatience;
    serving_.gate = &gate_;
    (GetParam().in_finish ? serving_.before_finish : serving_.before_step) = [this](int64_t) {
      if (fails_) throw DeviceError("an illegal memory access was encountered");
    };
  }

  std::atomic<bool> fails_{false};
  test::StepGate gate_;
  ScriptedServing serving_;
};
INSTANTIATE_TEST_SUITE_P(, EngineFailureTest,
                         testing::Values(Fault{"AtLaunch", 0, false}, Fault{"AtItsEnd", 0, true},
                                         Fault{"AtLaunchOneStepAhead", 1, false},
                                         Fault{"AtItsEndOneStepAhead", 1, true}),
                         [](const auto& fault) { return fault.param.name; });

TEST_P(EngineFailureTest, AFaultReachesEveryClientAndEndsTheServer) {
  constexpr size_t kClients = 24;
  constexpr size_t kRunning = 8;  // the others are queued
  serving_.engine.max_num_seqs = kRunning;
  TestServer server(serving_);
  RawClient idle = server.connect();
  EXPECT_EQ(idle.request("GET", "/health").status, 200);
  const auto streams = [](size_t i) { return i % 2 == 0; };
  std::vector<RawClient> clients;
  std::vector<std::string> received(kClients);
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(server.connect());
    clients.back().send(completion_request(completion_body({static_cast<TokenId>(5 + i)}, 900, streams(i)),
                                           "Connection: close\r\n"));
    ASSERT_TRUE(server.wait_for_requests(i + 1));
  }
  ASSERT_TRUE(gate_.run_steps(4));
  for (size_t i = 0; i < kRunning; ++i) {
    if (streams(i)) received[i] = clients[i].receive_until("data: ");
  }
  EXPECT_EQ(server.metric("vllm:num_requests_waiting"), kClients - kRunning);
  fails_ = true;
  gate_.open();
  for (size_t i = 0; i < kClients; ++i) {
    const ReceivedResponse response = parse_response(received[i] + clients[i].receive_all());
    EXPECT_TRUE(response.complete) << i;
    EXPECT_THAT(response.body, HasSubstr("illegal memory access")) << i;
    const bool has_begun = i < kRunning && streams(i);
    EXPECT_EQ(response.status, has_begun ? 200 : 500) << i << ": a stream that has begun gets an event";
    if (has_begun) {
      EXPECT_TRUE(parse_events(response.body).done) << i;
    }
  }
  clients.clear();
  idle.close();
  EXPECT_FALSE(server.wait());
}

TEST_P(EngineFailureTest, AfterAFaultHealthIsRedAndNewRequestsAreRefused) {
  fails_ = true;
  gate_.open();
  TestServer server(serving_);
  RawClient first = server.connect(), second = server.connect(), third = server.connect();
  EXPECT_EQ(first.request("GET", "/health").status, 200);
  // Requests under way keep the server there for a moment.
  const std::string health = RawClient::request_text("GET", "/health");
  const std::string completion = completion_request(completion_body({5}, 3, false));
  second.send(health.substr(0, 20));
  third.send(completion.substr(0, 20));
  ASSERT_TRUE(server.wait_for_connections(3));
  EXPECT_EQ(first.request("POST", "/v1/completions", completion_body({5}, 3, false)).status, 500);
  second.send(health.substr(20));
  third.send(completion.substr(20));
  const auto red = second.response();
  EXPECT_EQ(red.status, 503);
  EXPECT_THAT(red.body, HasSubstr("failed"));
  const auto refused = third.response();
  EXPECT_EQ(refused.status, 500);
  EXPECT_THAT(refused.body, HasSubstr("illegal memory access"));
  for (RawClient* client : {&first, &second, &third})
    client->close();
  EXPECT_FALSE(server.wait());
}

/// A server whose steps do not end until the test lets them.
class HangTest : public testing::Test {
 protected:
  HangTest() {
    serving_.gate = &gate_;
    serving_.server.stall_timeout = 200ms;
    serving_.server.shutdown_timeout = 100ms;
    serving_.server.last_step_timeout = 100ms;
  }
  static bool becomes(int status, const TestServer& server) {
    return test::wait_until([&] { return server.connect().request("GET", "/health").status == status; });
  }

  test::StepGate gate_;
  ScriptedServing serving_;
};

TEST_F(HangTest, AStepThatHangsTurnsHealthRedAndItsEndGreenAgain) {
  TestServer server(serving_);
  std::this_thread::sleep_for(serving_.server.stall_timeout + 50ms);
  EXPECT_EQ(server.connect().request("GET", "/health").status, 200)
      << "idle for longer than the stall timeout";
  for (const bool is_first_step : {true, false}) {
    RawClient client = server.connect();
    gate_.shut();
    client.send(completion_request(completion_body({5}, 200, true)));
    if (!is_first_step) {
      ASSERT_TRUE(gate_.run_steps(1));
      client.receive_until("data: ");
    }
    EXPECT_TRUE(becomes(503, server));
    gate_.open();
    EXPECT_TRUE(becomes(200, server));
    client.close();
    EXPECT_TRUE(server.wait_until_idle());
  }
}

TEST_F(HangTest, AServerWhoseEngineHangsSaysSoAndStillEnds) {
  TestServer server(serving_);
  RawClient client = server.connect();
  client.send(completion_request(completion_body({5}, 20, true)));
  EXPECT_TRUE(becomes(503, server));
  server.server().shut_down();
  EXPECT_EQ(client.response().status, 503);
  client.close();
  EXPECT_TRUE(test::wait_until([&] { return server.ended(); }));
  EXPECT_TRUE(server.server().engine_hangs());
  EXPECT_FALSE(server.wait());
}

}  // namespace
}  // namespace minfer
