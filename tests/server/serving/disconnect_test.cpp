// Clients that leave, in every phase of their request: nothing of them stays, and no other client notices.
#include <random>

#include <gmock/gmock.h>
#include <malloc.h>
#include <nlohmann/json.hpp>

#include "tests/support/sanitizers.h"
#include "tests/support/server/client_swarm.h"
#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;
using test::completion_body;
using test::completion_request;
using test::ScriptedServing;
using test::TestServer;

/// A request that many clients of a storm send.
struct Kind {
  std::vector<TokenId> prompt;
  int32_t max_tokens = 0;
  bool stream = false;
  std::string request;
  std::string text;           ///< the answer when it runs alone
  size_t received_bytes = 0;  ///< the length of the response then
};

std::vector<Kind> make_kinds(std::mt19937& random) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  const auto engine = test::make_scripted_engine({});
  std::vector<Kind> kinds(24);
  for (size_t i = 0; i < kinds.size(); ++i) {
    Kind& kind = kinds[i];
    const int length = i % 4 == 0 ? pick(300, 700) : pick(1, 40);  // some take several steps to prefill
    for (int t = 0; t < length; ++t)
      kind.prompt.push_back(t < 20 ? 50 + t : pick(3, 280));  // they begin alike
    kind.max_tokens = pick(1, 60);
    kind.stream = pick(0, 3) > 0;
    kind.request = completion_request(completion_body(kind.prompt, kind.max_tokens, kind.stream),
                                      "Connection: close\r\n");
    kind.text = test::text_alone(*engine, kind.prompt, kind.max_tokens);
  }
  return kinds;
}

std::string text_of(const ReceivedResponse& response, bool stream) {
  if (stream) return parse_events(response.body).text;
  return nlohmann::json::parse(response.body)["choices"][0]["text"];
}

void measure_lengths(const TestServer& server, std::vector<Kind>& kinds) {
  std::vector<SwarmClient> clients;
  for (const Kind& kind : kinds)
    clients.push_back({.request = kind.request});
  run_swarm(server.port(), clients);
  for (size_t i = 0; i < kinds.size(); ++i)
    kinds[i].received_bytes = clients[i].received.size();
}

/// A client of that kind. Three in ten leave, each in a random phase.
SwarmClient make_client(const Kind& kind, std::mt19937& random) {
  const auto pick = [&](size_t low, size_t high) {
    return std::uniform_int_distribution<size_t>(low, high)(random);
  };
  SwarmClient client{.request = kind.request, .starts_after = std::chrono::milliseconds(pick(0, 50))};
  if (pick(0, 9) >= 3) return client;
  client.leave = static_cast<Leave>(pick(0, 2));
  switch (pick(0, 3)) {
    case 0:  // before everything is sent
      client.leaves_after_sending = pick(1, kind.request.size() - 1);
      break;
    case 1:  // while it waits, is prefilled, or later
      client.leaves_after = std::chrono::milliseconds(pick(0, 100));
      break;
    case 2:  // in the middle of the answer
      client.leaves_after_receiving = pick(1, kind.received_bytes);
      break;
    default:  // at its end
      client.leaves_after_receiving = kind.received_bytes - pick(0, 30);
  }
  return client;
}

/// Expects that every client that stays gets its answer. Returns how many left.
ptrdiff_t storm(const TestServer& server, const std::vector<Kind>& kinds, size_t num_clients,
                std::mt19937& random) {
  std::vector<SwarmClient> clients;
  std::vector<const Kind*> kind_of;
  for (size_t i = 0; i < num_clients; ++i) {
    kind_of.push_back(&kinds[random() % kinds.size()]);
    clients.push_back(make_client(*kind_of.back(), random));
  }
  run_swarm(server.port(), clients);
  ptrdiff_t num_left = 0;
  for (size_t i = 0; i < num_clients; ++i) {
    EXPECT_FALSE(clients[i].timed_out) << i;
    if (clients[i].left) {
      ++num_left;
      continue;
    }
    const ReceivedResponse response = parse_response(clients[i].received);
    EXPECT_EQ(response.status, 200) << i << ": " << clients[i].received;
    EXPECT_TRUE(response.complete) << i;
    EXPECT_EQ(text_of(response, kind_of[i]->stream), kind_of[i]->text) << i;
  }
  // At least those that leave before all of their request is sent.
  EXPECT_GE(num_left, std::ranges::count_if(clients, [](const SwarmClient& client) {
              return client.leaves_after_sending != SIZE_MAX;
            }));
  return num_left;
}

std::string steps_name(const testing::TestParamInfo<int32_t>& info) {
  return info.param == 0 ? "StepByStep" : "OneStepAhead";
}

/// Parameter: a step is launched ahead (1), or none (0).
class DisconnectTest : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(, DisconnectTest, testing::Values(0, 1), steps_name);

TEST_P(DisconnectTest, AStormOfClientsLeavesNothingBehind) {
  const size_t num_clients = test::soaking() ? 1000 : 200;
  const int num_rounds = test::soaking() ? 10 : 4;
  constexpr int64_t kMaxGrowth = 4 << 20;
  std::mt19937 random(1);
  std::vector<Kind> kinds = make_kinds(random);
  ScriptedServing serving;
  serving.engine.num_blocks = 80;  // 1,280 tokens, not enough for all
  serving.engine.steps_ahead = GetParam();
  serving.before_step = [](int64_t) { std::this_thread::sleep_for(200us); };  // so that requests meet
  TestServer server(serving);
  measure_lengths(server, kinds);
  ASSERT_TRUE(server.wait_until_idle());
  RawClient probe = server.connect();  // the only connection that is open between the rounds
  ASSERT_TRUE(server.wait_for_connections(1));
  const auto only_the_probe_is_left = [&] {
    return TestServer::metric("minfer:http_connections", probe) == 1;
  };
  ASSERT_TRUE(test::wait_until(only_the_probe_is_left));
  const size_t descriptors = test::num_descriptors();
  int64_t resident = 0;
  ptrdiff_t num_left = 0;
  for (int round = 0; round < num_rounds; ++round) {
    num_left += storm(server, kinds, num_clients, random);
    ASSERT_TRUE(test::wait_until(only_the_probe_is_left)) << "round " << round;
    EXPECT_EQ(test::num_descriptors(), descriptors);
    ::malloc_trim(0);
    if (round == 1) resident = test::resident_bytes();
  }
  const int64_t growth = test::resident_bytes() - resident;
  RecordProperty("left", static_cast<int>(num_left));
  RecordProperty("preemptions", static_cast<int>(server.metric("vllm:num_preemptions_total")));
  RecordProperty("resident_growth_bytes", static_cast<int>(growth));
  EXPECT_LT(growth, test::kSanitized ? INT64_MAX : kMaxGrowth);
  probe.close();
  ASSERT_TRUE(server.wait_until_idle());
  EXPECT_TRUE(server.stop());
  EXPECT_EQ(server.engine().scheduler().blocks().num_live(), 0);
  EXPECT_FALSE(server.engine().has_work());
}

/// A server whose steps the test releases. It computes one sequence at a time, 16 tokens of a prompt a step.
class StepsTest : public testing::TestWithParam<int32_t> {
 protected:
  StepsTest() {
    serving_.engine.max_num_seqs = 1;
    serving_.engine.max_num_batched_tokens = 16;
    serving_.engine.enable_prefix_caching = false;
    serving_.engine.steps_ahead = GetParam();
    serving_.gate = &gate_;
  }

  static void leave(RawClient& client, Leave how) { how == Leave::close ? client.close() : client.reset(); }
  /// Lets the step under way pass. Expects that no work is left then and that no step came after it.
  void expect_no_other_step(const TestServer& server) {
    const int64_t num_arrived = gate_.num_arrived();
    gate_.let_pass();
    EXPECT_TRUE(server.wait_until_idle());
    EXPECT_EQ(gate_.num_arrived(), num_arrived);
  }

  test::StepGate gate_;
  ScriptedServing serving_;
};
INSTANTIATE_TEST_SUITE_P(, StepsTest, testing::Values(0, 1), steps_name);

const std::vector<TokenId> kLongPrompt(800, 70);

TEST_P(StepsTest, WhoHasLeftHoldsItsBlocksToTheEndOfTheStepOnItsWay) {
  TestServer server(serving_);
  for (const Leave how : {Leave::close, Leave::reset}) {
    for (const bool prefilling : {true, false}) {
      for (const bool stream : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {} {}", static_cast<int>(how), prefilling, stream));
        RawClient client = server.connect();
        client.send(completion_request(
            completion_body(prefilling ? kLongPrompt : std::vector<TokenId>{5, 6}, 200, stream)));
        ASSERT_TRUE(gate_.run_steps(3));
        EXPECT_GT(server.metric("vllm:kv_cache_usage_perc"), 0);
        leave(client, how);
        ASSERT_TRUE(server.wait_for_connections(0));
        expect_no_other_step(server);
      }
    }
  }
}

TEST_P(StepsTest, WhoLeavesBehindAPipelinedRequestIsNoticedToo) {
  TestServer server(serving_);
  for (const Leave how : {Leave::close, Leave::reset}) {
    RawClient client = server.connect();
    client.send(completion_request(completion_body({5, 6}, 500, false)));
    ASSERT_TRUE(gate_.wait_for_arrival());
    client.send(completion_request(completion_body({5, 6}, 500, false)));
    ASSERT_TRUE(
        server.wait_for_connections(1));  // the server has answered, so it has seen that there is more
    leave(client, how);
    ASSERT_TRUE(server.wait_for_connections(0)) << static_cast<int>(how);
    expect_no_other_step(server);
  }
}

// For example "printf ... | nc -N": a client that has no more to send still waits for the answer.
TEST_P(StepsTest, WhoHasClosedItsSendingHalfGetsItsAnswer) {
  TestServer server(serving_);
  size_t num_requests = 0;
  for (const bool stream : {true, false}) {
    gate_.shut();
    std::vector<RawClient> clients;  // one of them is prefilled or decodes, the others are queued
    for (int i = 0; i < 2; ++i) {
      clients.push_back(server.connect());
      clients.back().send(completion_request(completion_body({5, 6}, 10, stream)));
      ASSERT_TRUE(server.wait_for_requests(++num_requests));
      clients.back().shut_sending();
    }
    for (int i = 0; i < 4; ++i)
      ASSERT_TRUE(gate_.run_steps(1));
    EXPECT_TRUE(server.wait_for_connections(2));
    gate_.open();
    for (RawClient& client : clients) {
      const auto response = client.response();
      EXPECT_EQ(response.status, 200);
      EXPECT_EQ(text_of({.body = response.body}, stream),
                test::text_alone(*test::make_scripted_engine({}), {5, 6}, 10));
    }
  }
}

TEST_P(StepsTest, LeavingTheQueueDisturbsNobodyWhoRuns) {
  TestServer server(serving_);
  RawClient running = server.connect();
  running.send(completion_request(completion_body({5, 6, 7}, 30, true)));
  size_t num_requests = 1;
  ASSERT_TRUE(server.wait_for_requests(num_requests));  // before those that queue behind it
  for (const Leave how : {Leave::close, Leave::reset}) {
    RawClient queued = server.connect();
    queued.send(completion_request(completion_body({8, 9}, 30, true)));
    ASSERT_TRUE(server.wait_for_requests(++num_requests));
    ASSERT_TRUE(gate_.run_steps(1));
    EXPECT_EQ(server.metric("vllm:num_requests_waiting"), 1);
    leave(queued, how);
    ASSERT_TRUE(server.wait_for_connections(1));
    ASSERT_TRUE(gate_.run_steps(1));
    EXPECT_EQ(server.metric("vllm:num_requests_waiting"), 0);
  }
  gate_.open();
  const StreamedText streamed = parse_events(running.response().body);
  EXPECT_TRUE(streamed.done);
  EXPECT_EQ(streamed.text, test::text_alone(*test::make_scripted_engine({}), {5, 6, 7}, 30));
}

TEST_P(StepsTest, LeavingWhileAnotherIsPrefilledDisturbsNobody) {
  serving_.engine.max_num_seqs = 8;
  TestServer server(serving_);
  RawClient leaver = server.connect();
  leaver.send(completion_request(completion_body({5, 6, 7}, 200, true)));
  ASSERT_TRUE(gate_.run_steps(2));
  leaver.receive_until("data: ");
  RawClient prefilled = server.connect();
  prefilled.send(completion_request(completion_body(kLongPrompt, 5, true)));
  ASSERT_TRUE(server.wait_for_requests(2));
  ASSERT_TRUE(gate_.run_steps(5));
  EXPECT_EQ(server.metric("vllm:num_requests_running"), 2);
  leaver.reset();
  ASSERT_TRUE(server.wait_for_connections(1));
  gate_.open();
  const StreamedText streamed = parse_events(prefilled.response().body);
  EXPECT_EQ(streamed.text, test::text_alone(*test::make_scripted_engine({}), kLongPrompt, 5));
  prefilled.close();
  EXPECT_TRUE(server.wait_until_idle());
}

TEST_P(StepsTest, LeavingWhileSequencesAreSentBackToTheQueueDisturbsNobody) {
  // Four sequences of two blocks grow to six blocks each, but there are only sixteen.
  constexpr int32_t kTokens = 60;
  serving_.engine.max_num_seqs = 4;
  serving_.engine.max_num_batched_tokens = 256;
  serving_.engine.max_model_len = 128;
  serving_.engine.num_blocks = 16;
  TestServer server(serving_);
  std::vector<RawClient> clients;
  std::vector<std::vector<TokenId>> prompts;
  for (TokenId i = 0; i < 4; ++i) {
    prompts.emplace_back(32, 60 + i);
    clients.push_back(server.connect());
    clients.back().send(completion_request(completion_body(prompts.back(), kTokens, true)));
    ASSERT_TRUE(server.wait_for_requests(clients.size()));
  }
  for (int i = 0; i < 2 * kTokens && server.metric("vllm:num_preemptions_total") == 0; ++i)
    ASSERT_TRUE(gate_.run_steps(1));
  EXPECT_GT(server.metric("vllm:num_requests_waiting"), 0);
  clients[0].close();
  clients[3].reset();
  ASSERT_TRUE(server.wait_for_connections(2));
  gate_.open();
  const auto engine = test::make_scripted_engine({});
  for (const size_t stays : {1, 2}) {
    EXPECT_EQ(parse_events(clients[stays].response().body).text,
              test::text_alone(*engine, prompts[stays], kTokens));
  }
  clients.clear();
  EXPECT_TRUE(server.wait_until_idle());
}

TEST_P(StepsTest, PipelinedRequestsAreAnsweredInOrderHoweverTheyArrive) {
  TestServer server(serving_);
  RawClient client = server.connect();
  const std::string second = completion_request(completion_body({9}, 3, false));
  client.send(completion_request(completion_body({5, 6}, 10, true)));
  ASSERT_TRUE(gate_.run_steps(1));
  // In pieces while the first is being answered: the server looks at none of them until then.
  client.send(second.substr(0, 30));
  ASSERT_TRUE(server.wait_for_connections(1));
  ASSERT_TRUE(gate_.run_steps(2));
  client.send(second.substr(30) + RawClient::request_text("GET", "/version"));
  gate_.open();
  const auto engine = test::make_scripted_engine({});
  EXPECT_EQ(parse_events(client.response().body).text, test::text_alone(*engine, {5, 6}, 10));
  EXPECT_EQ(nlohmann::json::parse(client.response().body)["choices"][0]["text"],
            test::text_alone(*engine, {9}, 3));
  EXPECT_EQ(client.response().status, 200);
}

TEST_P(StepsTest, RequestsOfTheSameIdRunBesideEachOther) {
  serving_.engine.max_num_seqs = 16;
  TestServer server(serving_);
  const auto engine = test::make_scripted_engine({});
  // "x" with two choices has the engine ids x/0 and x/1; one of them may end before the other.
  const std::vector<std::pair<std::string, std::string>> requests{
      {"x/1", completion_body({5}, 30, true)},
      {"x", R"({"model":"scripted","prompt":[[6],[7,7]],"max_tokens":25,"ignore_eos":true,"stream":true})"},
      {"x", R"({"model":"scripted","prompt":[[8],[9,9]],"max_tokens":20,"ignore_eos":true,"stream":true})"},
      {"x", completion_body({10}, 15, true)},
      {"x", completion_body({11}, 10, true)}};
  std::vector<RawClient> clients;
  for (const auto& [id, body] : requests) {
    clients.push_back(server.connect());
    clients.back().send(completion_request(body, "X-Request-Id: " + id + "\r\n"));
    ASSERT_TRUE(server.wait_for_requests(clients.size()));
    ASSERT_TRUE(gate_.run_steps(2));
  }
  EXPECT_EQ(server.metric("vllm:num_requests_running"), 7);
  gate_.open();
  std::vector<size_t> sizes;
  for (size_t i = 0; i < clients.size(); ++i) {
    const auto response = clients[i].response();
    EXPECT_EQ(response.header("x-request-id"), requests[i].first);
    const StreamedText streamed = parse_events(response.body);
    EXPECT_TRUE(streamed.done && streamed.error.empty()) << i << streamed.error;
    sizes.push_back(streamed.text.size());
  }
  EXPECT_EQ(sizes[0], test::text_alone(*engine, {5}, 30).size());
  EXPECT_EQ(sizes[1],
            test::text_alone(*engine, {6}, 25).size() + test::text_alone(*engine, {7, 7}, 25).size());
  EXPECT_EQ(sizes[2],
            test::text_alone(*engine, {8}, 20).size() + test::text_alone(*engine, {9, 9}, 20).size());
  EXPECT_EQ(sizes[3], test::text_alone(*engine, {10}, 15).size());
  EXPECT_EQ(sizes[4], test::text_alone(*engine, {11}, 10).size());
}

TEST_P(StepsTest, AnOldClientGetsAStreamToTheEndOfItsConnection) {
  gate_.open();
  TestServer server(serving_);
  RawClient client = server.connect();
  const std::string body = completion_body({5, 6}, 10, true);
  client.send(
      fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  const std::string head = client.receive_until("\r\n\r\n");
  EXPECT_THAT(head, testing::HasSubstr("connection: close"));
  EXPECT_THAT(head, testing::Not(testing::HasSubstr("chunked")));
  EXPECT_EQ(parse_events(client.receive_all()).text,
            test::text_alone(*test::make_scripted_engine({}), {5, 6}, 10));
}

}  // namespace
}  // namespace minfer
