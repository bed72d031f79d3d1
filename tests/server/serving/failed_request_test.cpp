// A request that the engine cannot finish gets an error; the server and all other requests continue.
#include <gmock/gmock.h>

#include "tests/support/server/client_swarm.h"
#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

using test::completion_body;
using test::completion_request;
using test::ScriptedServing;
using test::TestServer;
using testing::HasSubstr;

/// No token can be drawn at position 6.
ScriptedServing serving() {
  ScriptedServing serving;
  serving.script = [](int64_t position) -> TokenId { return position == 6 ? -1 : 100; };
  return serving;
}

TEST(FailedRequestTest, IsAnsweredWith500AndTheNextOneServed) {
  TestServer server(serving());
  RawClient client = server.connect();
  for (int round = 0; round < 2; ++round) {
    const auto failed = client.request("POST", "/v1/completions", completion_body({5, 6, 7, 8}, 10, false));
    EXPECT_EQ(failed.status, 500);
    EXPECT_THAT(failed.body, HasSubstr("no token can follow token 6 of the sequence"));
    EXPECT_THAT(failed.body, HasSubstr("server_error"));
    EXPECT_EQ(client.request("POST", "/v1/completions", completion_body({5}, 4, false)).status, 200);
  }
  EXPECT_EQ(client.request("GET", "/health").status, 200);
  EXPECT_THAT(client.request("GET", "/metrics").body, HasSubstr("finished_reason=\"error\""));
}

TEST(FailedRequestTest, HasItsStreamEndedByAnErrorEvent) {
  test::StepGate gate;
  ScriptedServing gated = serving();
  gated.gate = &gate;
  TestServer server(gated);
  RawClient client = server.connect();
  client.send(completion_request(completion_body({5, 6, 7, 8}, 10, true), "Connection: close\r\n"));
  ASSERT_TRUE(gate.run_steps(1));
  std::string received =
      client.receive_until("data: ");  // the stream has begun, so its failure is no status any more
  gate.open();
  received += client.receive_all();
  const auto failed = parse_response(received);
  EXPECT_EQ(failed.status, 200);
  EXPECT_THAT(parse_events(failed.body).error, HasSubstr("no token can follow token 6 of the sequence"));
  const auto served = server.connect().request("POST", "/v1/completions", completion_body({5}, 4, true));
  EXPECT_EQ(parse_events(served.body).error, "");
  EXPECT_TRUE(parse_events(served.body).done);
}

}  // namespace
}  // namespace minfer
