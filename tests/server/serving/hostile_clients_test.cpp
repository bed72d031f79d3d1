// Clients that are slow, stalled, oversized or wrong: what they get, and what they cost others.
#include <algorithm>
#include <future>

#include <gmock/gmock.h>
#include <linux/sockios.h>
#include <malloc.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "tests/support/allocations.h"
#include "tests/support/server/client_swarm.h"
#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::completion_body;
using test::completion_request;
using test::ScriptedServing;
using test::TestServer;
using testing::HasSubstr;

/// Settings for streams of thousands of tokens.
ScriptedServing long_streams(test::StepGate& gate) {
  ScriptedServing serving;
  serving.engine.max_model_len = 4096;
  serving.engine.num_blocks = 64 * 256;
  serving.gate = &gate;
  return serving;
}

// Slow readers

/// Clients that request a long stream and read nothing of it.
std::vector<RawClient> stalled_readers(const TestServer& server, size_t count, int32_t max_tokens) {
  std::vector<RawClient> readers;
  for (size_t i = 0; i < count; ++i) {
    readers.push_back(server.connect());
    readers.back().set_receive_buffer(4096);
    readers.back().send(completion_request(completion_body({6}, max_tokens, true)));
  }
  return readers;
}

/// stalled_readers_benchmark measures how long others wait for a token beside them.
TEST(SlowReaderTest, StalledReadersHoldUpNobody) {
  constexpr size_t kStalled = 8;
  constexpr int64_t kUnread = 1000;  // tokens: more than the kernel buffers for a client
  constexpr int32_t kTokens = 50;
  test::StepGate gate;
  ScriptedServing serving = long_streams(gate);
  serving.server.limits.write_timeout = 1h;  // no client is dropped
  serving.script = [letter = test::letter_token()](int64_t) { return letter; };
  TestServer server(serving);
  const std::vector<RawClient> stalled = stalled_readers(server, kStalled, 3000);
  ASSERT_TRUE(server.wait_for_requests(kStalled));
  ASSERT_TRUE(gate.run_steps(kUnread));
  RawClient reader = server.connect();
  reader.send(completion_request(completion_body({5}, kTokens, true)));
  ASSERT_TRUE(server.wait_for_requests(kStalled + 1));
  ASSERT_TRUE(gate.run_steps(1));  // the last one without it
  std::string received;
  for (int32_t token = 0; token < kTokens; ++token) {
    ASSERT_TRUE(gate.run_steps(1));
    received += reader.receive_until("\n\n");  // each comes although none of the next has been computed
  }
  received += reader.receive_until("0\r\n\r\n");
  const StreamedText streamed = parse_events(parse_response(received).body);
  EXPECT_EQ(streamed.text.size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(server.metric("vllm:num_requests_running"), kStalled) << "dropped already";
}

/// Bytes in the kernel that clients of `port` have not taken, over all connections of this process.
int64_t unsent_kernel_bytes(uint16_t port) {
  int64_t sum = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    int queued = 0;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        ntohs(address.sin_port) == port && ::ioctl(fd, SIOCOUTQ, &queued) == 0)
      sum += queued;
  }
  return sum;
}

TEST(SlowReaderTest, AStalledReaderCostsAQuarterOfAMebibyteAndIsDropped) {
  constexpr size_t kStalled = 16;
  constexpr int32_t kTokens = 4000;
  constexpr int64_t kStepsAtOnce = 20;
  constexpr int64_t kMost = 256 << 10;
  test::StepGate gate;
  ScriptedServing serving = long_streams(gate);
  serving.server.limits.write_timeout = 3s;
  TestServer server(serving);
  const std::vector<RawClient> stalled = stalled_readers(server, kStalled, kTokens);
  ASSERT_TRUE(server.wait_for_requests(kStalled));
  const auto heap_before = static_cast<int64_t>(::mallinfo2().uordblks);
  int64_t most_heap = 0, most_kernel = 0, most = 0;
  const auto all_are_dropped = [&] { return server.metric("minfer:http_connections") == 1; };
  for (int64_t steps = kStepsAtOnce; steps < kTokens && !all_are_dropped(); steps += kStepsAtOnce) {
    const int64_t heap = static_cast<int64_t>(::mallinfo2().uordblks) - heap_before;
    const int64_t kernel = unsent_kernel_bytes(server.port());
    most_heap = std::max(most_heap, heap);
    most_kernel = std::max(most_kernel, kernel);
    most = std::max(most, heap + kernel);
    gate.let_pass(kStepsAtOnce);
    ASSERT_TRUE(test::wait_until([&] { return gate.num_arrived() > steps || all_are_dropped(); }));
  }
  RecordProperty("heap_bytes", static_cast<int>(most_heap / static_cast<int64_t>(kStalled)));
  RecordProperty("kernel_bytes", static_cast<int>(most_kernel / static_cast<int64_t>(kStalled)));
  RecordProperty("bytes", static_cast<int>(most / static_cast<int64_t>(kStalled)));
  EXPECT_GT(most_kernel, 0);
  EXPECT_LT(most / static_cast<int64_t>(kStalled), kMost);
  // The gate is shut, so no answer ends.
  EXPECT_TRUE(test::wait_until(all_are_dropped));
  gate.open();
  EXPECT_TRUE(server.wait_until_idle());
}

// Slow senders

TEST(SlowSenderTest, HundredsOfUnfinishedRequestsHoldUpNobody) {
  constexpr size_t kUnfinished = 400;
  ScriptedServing serving;
  serving.server.limits.header_timeout = serving.server.limits.body_timeout = 1h;
  TestServer server(serving);
  const std::string request = completion_request(completion_body(std::vector<TokenId>(100, 7), 5, false));
  const size_t head_bytes = request.find("\r\n\r\n") + 4;
  std::vector<RawClient> unfinished;
  for (size_t i = 0; i < kUnfinished; ++i) {
    unfinished.push_back(server.connect());
    unfinished.back().send(request.substr(0, i % 2 == 0 ? head_bytes / 2 : head_bytes + 10));
  }
  ASSERT_TRUE(server.wait_for_connections(kUnfinished));
  for (int i = 0; i < 20; ++i) {
    const auto response = server.connect().request("POST", "/v1/completions", completion_body({5}, 5, false));
    EXPECT_EQ(response.status, 200);
  }
  ASSERT_TRUE(server.wait_for_connections(kUnfinished));
  // These two are still served.
  for (const size_t i : {size_t{0}, kUnfinished - 1}) {
    unfinished[i].send(request.substr(i % 2 == 0 ? head_bytes / 2 : head_bytes + 10));
    EXPECT_EQ(unfinished[i].response().status, 200);
  }
  unfinished.clear();
  EXPECT_TRUE(server.wait_until_idle());
}

TEST(SlowSenderTest, WhoGoesOnSendingAByteAtATimeIsTimedOutAllTheSame) {
  const std::string body = completion_body(std::vector<TokenId>(1000, 7), 5, false);
  const std::string head_and_body = completion_request(body, "X-Long: " + std::string(10'000, 'x') + "\r\n");
  const size_t head_bytes = head_and_body.size() - body.size();
  for (const bool in_head : {true, false}) {
    ScriptedServing serving;
    (in_head ? serving.server.limits.header_timeout : serving.server.limits.body_timeout) = 200ms;
    (in_head ? serving.server.limits.body_timeout : serving.server.limits.header_timeout) = 1h;
    serving.server.limits.linger_timeout =
        1h;  // until the client has read its answer, however late it gets to it
    TestServer server(serving);
    // A quarter of a minute, if they were allowed to finish.
    std::vector<SwarmClient> slow(50, {.request = head_and_body,
                                       .byte_interval = in_head ? 2ms : 8ms,
                                       .dribbles_after = in_head ? 20 : head_bytes + 1});
    run_swarm(server.port(), slow);
    for (const SwarmClient& client : slow) {
      EXPECT_FALSE(client.timed_out);
      EXPECT_EQ(parse_response(client.received).status, 408) << client.received;
    }
    EXPECT_TRUE(server.wait_until_idle());
  }
}

TEST(SlowSenderTest, LargeBodiesTogetherAreLimitedAndSmallOnesPass) {
  ScriptedServing serving;
  serving.server.limits.body_bytes = 1 << 20;
  serving.server.limits.all_bodies_bytes = 4 << 20;
  TestServer server(serving);
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
  std::vector<RawClient> held;
  for (int i = 0; i < 4; ++i) {
    held.push_back(server.connect());
    held.back().send(head + std::string(999'999, ' '));
  }
  // The server may still be reading some of it.
  const auto is_refused = [&] {
    RawClient large = server.connect();
    large.send(head);
    large.send(std::string(1'000'000, ' '));
    const auto response = large.response();
    EXPECT_EQ(response.header("retry-after"), response.status == 503 ? "1" : "");
    return response.status == 503;
  };
  EXPECT_TRUE(test::wait_until(is_refused));
  EXPECT_EQ(server.connect().request("POST", "/v1/completions", completion_body({5}, 2, false)).status, 200);
  held.clear();
  const auto says_that_it_is_empty = [&] {
    return server.connect().request("POST", "/v1/completions", std::string(1'000'000, ' ')).status == 400;
  };
  EXPECT_TRUE(test::wait_until(says_that_it_is_empty)) << "once there is room again";
}

TEST(SlowSenderTest, LargeTextsToTokeniseHoldUpNobody) {
  ScriptedServing serving;
  serving.engine.max_model_len = 4096;
  TestServer server(serving);
  // Stands for a task that takes as long as the test likes.
  std::promise<void> its_end;
  server.loop().run_in_background([is_over = std::make_shared<std::future<void>>(
                                       its_end.get_future())] { is_over->wait_for(test::kPatience); },
                                  true);
  std::string text;
  while (text.size() < 16'000)
    text += "\u00e9";  // a token for each of its two bytes
  const std::string body =
      R"({"model":"scripted","return_token_strs":true,"prompt":")" + text + "\"}" + std::string(60'000, ' ');
  std::vector<RawClient> large;
  for (int i = 0; i < 3; ++i) {
    large.push_back(server.connect());
    large.back().send(RawClient::request_text("POST", "/tokenize", body));
  }
  ASSERT_TRUE(server.wait_for_connections(large.size()));
  EXPECT_EQ(server.connect().request("POST", "/v1/completions", completion_body({5}, 2, false)).status, 200);
  for (const RawClient& client : large)
    EXPECT_FALSE(client.is_readable()) << "it waits for the other one that takes long";
  its_end.set_value();
  for (RawClient& client : large) {
    const auto response = client.response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.header("transfer-encoding"), "chunked") << "it leaves in pieces";
    const json given = json::parse(response.body);
    EXPECT_EQ(given["tokens"].size(), given["count"]);
  }
}

TEST(SlowSenderTest, TextsThatCannotFitAreRefusedBeforeTheyAreTokenised) {
  TestServer server;
  const std::string text(1 << 20, 'a');
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {"/tokenize", R"({"prompt":")" + text + "\"}"},
           {"/tokenize", R"({"messages":[{"role":"user","content":")" + text + "\"}]}"},
           {"/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":")" + text + "\"}]}"},
           {"/v1/completions", R"({"prompt":")" + text + "\"}"},
           {"/detokenize", fmt::format("{{\"tokens\":[{}]}}", fmt::join(std::vector(2000, 5), ","))}}) {
    const auto response = server.connect().request("POST", path, body);
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_THAT(response.body, HasSubstr("maximum context length")) << path;
  }
}

// The end of memory

/// While a body is read, and while a text is tokenised: a request that needs too much memory is told so, and other streams continue.
TEST(MemoryEndTest, IsAnsweredWith503AndStreamsGoOn) {
  if (!test::counts_allocations()) GTEST_SKIP() << "a sanitizer has its own operator new";
  test::StepGate gate;
  TestServer server(long_streams(gate));
  RawClient stream = server.connect();
  stream.send(completion_request(completion_body({5}, 20, true)));
  ASSERT_TRUE(gate.wait_for_arrival());
  const std::string text(16'000, 'a');
  const std::string of_much_text =
      RawClient::request_text("POST", "/v1/completions", R"({"prompt":")" + text + "\"}");
  const std::string of_many_bytes =
      RawClient::request_text("POST", "/v1/completions", std::string(8 << 20, ' '));
  for (const auto& [request, least] :
       {std::pair(&of_many_bytes, 4u << 20), std::pair(&of_much_text, 60'000u)}) {
    RawClient client = server.connect();
    const test::RefusedAllocations refused(least);
    client.send(*request);
    const auto response = client.response();
    EXPECT_EQ(response.status, 503) << request->size() << " bytes: " << response.body;
    EXPECT_EQ(response.header("retry-after"), "1");
  }
  ASSERT_TRUE(gate.run_steps(10));
  gate.open();
  EXPECT_TRUE(parse_events(stream.response().body).done);
  EXPECT_EQ(server.connect().request("POST", "/tokenize", R"({"prompt":")" + text + "\"}").status, 200);
  EXPECT_EQ(server.connect().request("GET", "/health").status, 200);
}

// Wrong and oversized requests, through the socket

struct Wrong {
  std::string what;
  std::string request;
  int status;
  std::string says = "";
};

std::string post(const std::string& body, const std::string& path = "/v1/completions") {
  return RawClient::request_text("POST", path, body);
}

std::string with(const std::string& field) {
  return post(R"({"model":"scripted","prompt":"a","max_tokens":2,)" + field + "}");
}

std::vector<Wrong> wrong_requests() {
  const std::string get = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  std::vector<Wrong> wrong{
      {"body", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
       413},
      {"header", get + "X: " + std::string(100'000, 'a') + "\r\n\r\n", 431},
      {"URL", "GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\n\r\n", 431},
      {"1 MB prompt", with(R"("echo":true,"prompt":")" + std::string(1 << 20, 'x') + "\""), 400},
      {"10 MB of a character", post(R"({"model":"scripted","prompt":")" + std::string(10 << 20, 'a') + "\"}"),
       400, "context length"},
      {"deep JSON", post(std::string(200'000, '[')), 400},
      {"a body that is no JSON", post("{]"), 400, "JSON"},
      {"an array", post("[]"), 400},
      {"unknown model", post(R"({"model":"gpt-9","prompt":"a"})"), 404, "gpt-9"},
      {"wrong method", RawClient::request_text("GET", "/v1/completions"), 405},
      {"wrong method", RawClient::request_text("DELETE", "/health"), 405},
      {"wrong path", RawClient::request_text("GET", "/v2/completions"), 404},
      {"context", post(completion_body(std::vector<TokenId>(2000, 5), 5, false)), 400, "context length"},
      {"KV capacity", post(completion_body(std::vector<TokenId>(1024, 5), 1, false)), 400, "context length"},
      {"token", post(completion_body({99'999}, 5, false)), 400},
      {"Host", "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403},
      {"Origin", get + "Origin: http://evil.example\r\n\r\n", 403},
  };
  for (const char* field :
       {R"("n":0)", R"("n":-1)", R"("n":1e99)", R"("max_tokens":-5,"n":1)", R"("temperature":-1)",
        R"("temperature":"hot")", R"("top_p":2)", R"("logprobs":99999999999999999999)", R"("seed":1e400)",
        R"("presence_penalty":1e9)", R"("stop":[1])", R"("stream_interval":-1,"stream":true)",
        R"("logit_bias":{"5":"x"})", R"("min_tokens":9223372036854775807)"})
    wrong.push_back({field, with(field), 400});
  return wrong;
}

TEST(WrongRequestTest, EachIsAnsweredWithItsStatusAndTheServerGoesOn) {
  ScriptedServing serving;
  serving.engine.max_model_len = 0;  // as much as the KV cache holds
  serving.engine.num_blocks = 64;
  TestServer server(serving);
  for (const Wrong& wrong : wrong_requests()) {
    RawClient client = server.connect();
    client.send(wrong.request);
    const auto response = client.response();
    EXPECT_EQ(response.status, wrong.status) << wrong.what << ": " << response.body.substr(0, 300);
    const json error = json::parse(response.body, nullptr, false);
    EXPECT_TRUE(error.is_object() && error["error"]["message"].is_string()) << wrong.what << response.body;
    EXPECT_THAT(response.body, HasSubstr(wrong.says)) << wrong.what;
    client.close();
    EXPECT_EQ(server.connect().request("POST", "/v1/completions", completion_body({5}, 2, false)).status,
              200);
  }
  EXPECT_TRUE(server.wait_until_idle());
}

TEST(WrongRequestTest, AFullQueueIsSaidWith429) {
  test::StepGate gate;
  ScriptedServing serving = long_streams(gate);
  serving.engine.max_num_seqs = 2;
  serving.server.max_queue_size = 3;
  TestServer server(serving);
  std::vector<RawClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(server.connect());
    clients.back().send(completion_request(completion_body({5}, 3000, false)));
  }
  ASSERT_TRUE(server.wait_for_requests(clients.size()));
  RawClient late = server.connect();
  const auto refused = late.request("POST", "/v1/completions", completion_body({5}, 3, false));
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("retry-after"), "1");
  EXPECT_THAT(refused.body, HasSubstr("rate_limit_exceeded"));
  clients.clear();
  late.close();
  gate.open();
  EXPECT_TRUE(test::wait_until([&] {
    return server.connect().request("POST", "/v1/completions", completion_body({5}, 3, false)).status == 200;
  })) << "once the queue is empty";
  EXPECT_TRUE(server.wait_until_idle());
}

}  // namespace
}  // namespace minfer
