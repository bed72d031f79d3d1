// Answers of many choices with logprobs: whole answers leave in pieces, streams wait for their client,
// and a stream with nothing to send stays open.
#include <condition_variable>
#include <mutex>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/server/client_swarm.h"
#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;
using test::completion_body;
using test::completion_request;
using test::ScriptedServing;
using test::TestServer;

constexpr int32_t kChoices = 32;
constexpr int32_t kTokens = 200;
constexpr auto kLongestWait = 120s;

RawClient ask(const TestServer& server, bool stream) {
  RawClient client(server.port(), kLongestWait);
  client.set_receive_buffer(64 << 10);
  client.send(completion_request(completion_body(
      {5, 6}, kTokens, stream, fmt::format(R"("n":{},"logprobs":3,"temperature":0)", kChoices))));
  return client;
}

/// Waits until the engine has delivered everything that was requested.
void wait_for_engine(const TestServer& server) {
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  while (server.metric("vllm:generation_tokens_total") < kChoices * kTokens &&
         std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(5ms);
}

TEST(LongAnswersTest, AStreamThatItsClientReadsLateIsWhole) {
  TestServer server;
  RawClient client = ask(server, true);
  wait_for_engine(server);
  const StreamedText streamed = parse_events(client.response().body);
  EXPECT_TRUE(streamed.done);
  EXPECT_EQ(streamed.error, "");
  const std::string alone = test::text_alone(*test::make_scripted_engine({}), {5, 6}, kTokens);
  EXPECT_EQ(streamed.text.size(), alone.size() * kChoices);
}

TEST(LongAnswersTest, AWholeAnswerComesInPieces) {
  TestServer server;
  RawClient client = ask(server, false);
  wait_for_engine(server);
  EXPECT_EQ(server.connect().request("GET", "/health").status, 200);
  const auto response = client.response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.header("transfer-encoding"), "chunked");
  const auto body = nlohmann::json::parse(response.body);
  ASSERT_EQ(body["choices"].size(), static_cast<size_t>(kChoices));
  const std::string alone = test::text_alone(*test::make_scripted_engine({}), {5, 6}, kTokens);
  for (const auto& choice : body["choices"]) {
    EXPECT_EQ(choice["text"], alone);
    EXPECT_EQ(choice["logprobs"]["tokens"].size(), static_cast<size_t>(kTokens));
  }
  // The connection continues after it.
  EXPECT_EQ(client.request("GET", "/health").status, 200);
}

TEST(LongAnswersTest, AnAnswerThatMayBeTooLargeIsRefused) {
  ScriptedServing serving;
  serving.server.max_answer_bytes = 100'000;
  TestServer server(serving);
  const auto refused = ask(server, false).response();
  ASSERT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, testing::HasSubstr("max_tokens"));
  EXPECT_THAT(refused.body, testing::HasSubstr("--max-answer-bytes"));
}

/// Steps that wait until they are released.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    opened_.wait_for(lock, kLongestWait, [this] { return is_open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

TEST(LongAnswersTest, AStreamThatWaitsForItsFirstTokenGetsCommentLines) {
  Gate gate;
  ScriptedServing serving;
  serving.before_step = [&](int64_t) { gate.pass(); };
  serving.server.comment_interval = 50ms;
  TestServer server(serving);
  RawClient client(server.port(), kLongestWait);
  client.send(completion_request(completion_body({5, 6}, 20, true)));
  EXPECT_NE(client.receive_until("\r\n\r\n"), "");
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(client.receive_until("\n\n\r\n"), testing::HasSubstr(": waiting\n\n"));
  gate.open();
  const std::string rest = client.receive_until("0\r\n\r\n");
  EXPECT_THAT(rest, testing::HasSubstr("data: {"));
  EXPECT_THAT(rest, testing::HasSubstr("data: [DONE]"));
}

}  // namespace
}  // namespace minfer
