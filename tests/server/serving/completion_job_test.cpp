// A request of several choices, one of which fails.
#include "server/serving/completion/completion_job.h"

#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kernels/base/clock.h"
#include "tests/support/server/answer_pieces.h"
#include "tests/support/server/api_requests.h"
#include "tests/support/server/tag_parser.h"

namespace minfer {
namespace {

using testing::HasSubstr;

/// Keeps the answers that it gets.
class FakeExchange final : public HttpExchange {
 public:
  HttpRequest& request() override { return request_; }
  void drop_body() override {}
  bool hold(size_t) override { return true; }
  void respond(HttpResponse response) override {
    status = response.status;
    body = response.body;
    ++num_ends;
  }
  void begin_stream(HttpResponse head) override { status = head.status; }
  void write(std::string_view text) override {
    body += text;
    last_write = text.size();
    --room;
  }
  void end() override { ++num_ends; }
  void abort() override { ADD_FAILURE() << "an answer that breaks off"; }
  bool has_room() const override { return room > 0; }
  void on_room(std::function<void()> callback) override { waiting = std::move(callback); }
  bool is_closed() const override { return false; }
  void on_closed(std::function<void()>) override {}
  void on_over(std::function<void()> callback) override { over = std::move(callback); }

  int status = 0;
  int num_ends = 0;
  int room = 1000;  ///< number of writes that the client has room for
  size_t last_write = 0;
  std::function<void()> waiting;
  std::function<void()> over;
  std::string body;

 private:
  HttpRequest request_;
};

class CompletionJobTest : public testing::Test {
 protected:
  CompletionJob& start(bool stream) { return ask(stream ? R"("n":3,"stream":true)" : R"("n":3)"); }
  CompletionJob& ask(std::string_view members) {
    job_ = std::make_shared<CompletionJob>(loop_, exchange_, api_.completion(members), "cmpl-1", 0,
                                           api_.context, metrics_);
    return *job_;
  }
  static RequestOutput output(const std::string& text, std::optional<FinishReason> finish = {}) {
    RequestOutput made;
    made.text = text;
    made.finish = finish;
    return made;
  }

  EventLoop loop_{1};
  /// A token with twenty alternatives.
  static SampledToken likely_token() {
    SampledToken token{59, -1.0f, {}};
    for (TokenId i = 0; i < 20; ++i)
      token.top.push_back({60 + i, -2.5f});
    return token;
  }

  test::TestApi api_;
  Metrics metrics_{"small", EngineOptions{}, std::make_shared<prometheus::Registry>()};
  std::shared_ptr<FakeExchange> exchange_ = std::make_shared<FakeExchange>();
  std::shared_ptr<CompletionJob> job_;
};

TEST_F(CompletionJobTest, AChoiceRefusedBeforeAnythingWasSentGivesItsStatus) {
  for (const bool stream : {true, false}) {
    *exchange_ = FakeExchange();
    CompletionJob& job = start(stream);
    job.take(1, output("", FinishReason::refused));
    job.send();
    EXPECT_EQ(exchange_->status, 400) << stream;
    EXPECT_EQ(exchange_->num_ends, 1);
    EXPECT_TRUE(job.failed()) << "so that the other choices are cancelled";
    job.take(0, output("too late", FinishReason::length));
    job.send();
    EXPECT_EQ(exchange_->num_ends, 1);
    EXPECT_THAT(exchange_->body, testing::Not(HasSubstr("too late")));
  }
}

TEST_F(CompletionJobTest, AChoiceThatFailsLaterEndsTheStreamBehindWhatCameBefore) {
  CompletionJob& job = start(true);
  job.take(0, output("first "));
  job.send();
  job.take(2, output("second "));
  job.take(1, output("", FinishReason::cancelled));
  job.take(0, output("third"));
  job.send();
  EXPECT_EQ(exchange_->status, 200);
  EXPECT_EQ(exchange_->num_ends, 1);
  EXPECT_TRUE(job.failed());
  EXPECT_THAT(exchange_->body, HasSubstr("first "));
  EXPECT_THAT(exchange_->body, HasSubstr("second "));
  EXPECT_THAT(exchange_->body, HasSubstr("\"error\""));
  EXPECT_THAT(exchange_->body, testing::EndsWith("data: [DONE]\n\n"));
}

TEST_F(CompletionJobTest, AChoiceThatEndsEarlyIsWantedNoMore) {
  test::parse_tags(api_.context);
  for (const bool stream : {true, false}) {
    *exchange_ = FakeExchange();
    CompletionJob job(
        loop_, exchange_,
        api_.chat(std::string(test::kChatTools) + R"(,"n":2,"parallel_tool_calls":false,"stream":)" +
                  (stream ? "true" : "false")),
        "chatcmpl-1", 0, api_.context, metrics_);
    std::vector<std::string> problems;
    job.on_problem([&](const std::string& problem) { problems.push_back(problem); });
    job.take(1, output("<c:f>{}</c>"));
    job.send();
    EXPECT_THAT(job.take_unwanted(), testing::ElementsAre("chatcmpl-1/1"));
    EXPECT_THAT(job.take_unwanted(), testing::IsEmpty());
    job.take(1, output("more"));
    job.take(1, output("", FinishReason::cancelled));
    job.take(0, output("<c:f>{", FinishReason::stop));
    EXPECT_FALSE(job.failed());
    EXPECT_THAT(problems, testing::IsEmpty());
    job.send();
    EXPECT_EQ(exchange_->status, 200);
    EXPECT_EQ(exchange_->num_ends, 1);
    EXPECT_THAT(exchange_->body, testing::Not(HasSubstr("more")));
    EXPECT_THAT(job.take_unwanted(), testing::IsEmpty());
    EXPECT_THAT(problems, testing::ElementsAre("call 1: a call is cut off"));
  }
}

TEST_F(CompletionJobTest, AnswersSayInTheirHeadHowLongTheirPartsTook) {
  CompletionJob& whole = ask(R"("n":2)");
  whole.take(0, test::with_times(output("ab", FinishReason::length), 4));
  whole.send();
  EXPECT_TRUE(exchange_->headers().empty()) << "the other choice is not over";
  whole.take(1, test::with_times(output("ab", FinishReason::length), 7));
  whole.send();
  EXPECT_EQ(exchange_->num_ends, 1);
  EXPECT_THAT(exchange_->headers(),
              testing::ElementsAre(
                  testing::Pair("server-timing", "queue;dur=1.000, prefill;dur=20.000, decode;dur=7.000")));

  *exchange_ = FakeExchange();
  CompletionJob& stream = ask(R"("stream":true)");
  stream.take(0, test::with_times(output("a"), 0));
  stream.send();
  stream.take(0, test::with_times(output("b", FinishReason::length), 4));
  stream.send();
  EXPECT_THAT(exchange_->headers(),
              testing::ElementsAre(testing::Pair("server-timing", "queue;dur=1.000, prefill;dur=20.000")));

  *exchange_ = FakeExchange();
  CompletionJob& slow = ask(R"("stream":true)");
  slow.keep_open(now_ns(), std::chrono::nanoseconds(1));
  EXPECT_EQ(exchange_->status, 200) << "a comment came before the first token";
  slow.take(0, test::with_times(output("a", FinishReason::length), 0));
  slow.send();
  EXPECT_THAT(exchange_->headers(), testing::IsEmpty());

  *exchange_ = FakeExchange();
  CompletionJob& refused = ask(R"("n":1)");
  refused.take(0, output("", FinishReason::refused));
  refused.send();
  EXPECT_THAT(exchange_->headers(), testing::IsEmpty());
}

TEST_F(CompletionJobTest, AStreamWaitsForItsClientAndMergesWhatComesMeanwhile) {
  CompletionJob& job = start(true);
  const std::shared_ptr<const ClientWait> wait = job.engine_requests().front().client_wait;
  exchange_->room = 1;
  job.take(0, output("first "));
  job.send();
  EXPECT_EQ(wait->until(now_ns()), 0) << "all was taken";
  for (const char* text : {"second ", "third"}) {
    job.take(0, output(text));
    job.send();
  }
  job.take(1, output("other", FinishReason::length));
  job.send();
  EXPECT_THAT(exchange_->body, testing::Not(HasSubstr("second")));
  EXPECT_GT(wait->until(now_ns() + 1), 0);
  exchange_->room = 1;
  std::exchange(exchange_->waiting, nullptr)();
  EXPECT_THAT(exchange_->body, HasSubstr("second third"));
  EXPECT_THAT(exchange_->body, HasSubstr("other"));
  EXPECT_EQ(exchange_->num_ends, 0) << "two choices have not ended";
  EXPECT_FALSE(exchange_->waiting);
}

TEST_F(CompletionJobTest, AnEndedAnswerWaitsForItsClientUntilThatHasTakenIt) {
  for (const bool stream : {true, false}) {
    *exchange_ = FakeExchange();
    CompletionJob& job = ask(stream ? R"("stream":true)" : "");
    const std::shared_ptr<const ClientWait> wait = job.engine_requests().front().client_wait;
    job.take(0, output("all", FinishReason::length));
    EXPECT_FALSE(wait->is_waiting()) << "nothing was sent";
    job.send();
    EXPECT_EQ(exchange_->num_ends, 1);
    EXPECT_TRUE(wait->is_waiting());
    EXPECT_FALSE(wait->is_finished());
    const int64_t before_ns = now_ns();
    EXPECT_GE(wait->until(before_ns + 1'000), 1'000);
    std::exchange(exchange_->over, nullptr)();
    EXPECT_TRUE(wait->is_finished());
    EXPECT_FALSE(wait->is_waiting());
    EXPECT_EQ(wait->until(now_ns() + 1'000'000'000), wait->until(0)) << "it is over";
  }
}

TEST_F(CompletionJobTest, WhatALongStreamSendsAtATimeIsBounded) {
  constexpr int kOutputs = 100;
  constexpr size_t kMostBytes = 128u << 10;
  CompletionJob& job = ask(R"("n":3,"stream":true,"logprobs":20)");
  exchange_->room = 0;
  for (int i = 0; i < kOutputs; ++i) {
    for (const int32_t choice : {0, 1, 2}) {
      RequestOutput made = output("x");
      made.logprobs.assign(32, likely_token());
      if (i + 1 == kOutputs) made.finish = FinishReason::length;
      job.take(choice, std::move(made));
    }
    job.send();
  }
  EXPECT_EQ(exchange_->body, "");
  size_t most = 0;
  while (exchange_->num_ends == 0) {
    ASSERT_TRUE(exchange_->waiting);
    exchange_->room = 1;
    const size_t before = exchange_->body.size();
    std::exchange(exchange_->waiting, nullptr)();
    most = std::max(most, exchange_->body.size() - before);
  }
  EXPECT_LT(most, kMostBytes);
  EXPECT_THAT(exchange_->body, testing::EndsWith("data: [DONE]\n\n"));
}

TEST_F(CompletionJobTest, AQuietStreamGetsACommentLine) {
  using std::chrono::seconds;
  constexpr int64_t kSecondNs = 1'000'000'000;
  const int64_t long_ago = now_ns() - 100 * kSecondNs;
  CompletionJob& job = start(true);  // it arrived at 0
  job.keep_open(14 * kSecondNs, seconds(15));
  EXPECT_EQ(exchange_->body, "");
  job.keep_open(15 * kSecondNs, seconds(15));
  EXPECT_EQ(exchange_->body, ": waiting\n\n");
  EXPECT_EQ(exchange_->status, 200);
  job.keep_open(long_ago, seconds(15));
  EXPECT_EQ(exchange_->body, ": waiting\n\n") << "the line itself was sent after that";
  job.keep_open(now_ns() + 15 * kSecondNs, seconds(15));
  EXPECT_EQ(exchange_->body, ": waiting\n\n: waiting\n\n");
  CompletionJob& whole = start(false);
  whole.keep_open(15 * kSecondNs, seconds(15));
  EXPECT_EQ(exchange_->body.size(), 2 * std::string_view(": waiting\n\n").size());
}

TEST_F(CompletionJobTest, ALongAnswerLeavesInPiecesAsItsClientTakesThem) {
  constexpr size_t kMostBytes = 80u << 10;
  CompletionJob& job = ask(R"("n":3,"logprobs":20)");
  exchange_->room = 0;
  for (const int32_t choice : {2, 0, 1}) {
    RequestOutput made = output("x", FinishReason::length);
    made.logprobs.assign(500, likely_token());
    job.take(choice, std::move(made));
    job.send();
  }
  std::jthread io([this] { loop_.run(); });  // results of background work return to it
  std::promise<void> ended;
  size_t most = 0;
  std::function<void()> take = [&] {
    if (exchange_->num_ends > 0) return ended.set_value();
    if (exchange_->waiting) {
      most = std::max(most, std::exchange(exchange_->last_write, 0));
      exchange_->room = 1;
      std::exchange(exchange_->waiting, nullptr)();
    }
    loop_.post(take);
  };
  loop_.post(take);
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::minutes(2)), std::future_status::ready);
  loop_.stop();
  io.join();
  EXPECT_GT(most, 0u);
  EXPECT_LT(most, kMostBytes);
  const auto body = nlohmann::json::parse(exchange_->body);
  ASSERT_EQ(body["choices"].size(), 3u);
  for (const auto& choice : body["choices"])
    EXPECT_EQ(choice["logprobs"]["top_logprobs"].size(), 500u);
}

}  // namespace
}  // namespace minfer
