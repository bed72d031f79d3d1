// A request of several choices, one of which fails.
#include "server/serving/completion_job.h"

#include <gmock/gmock.h>

#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

using testing::HasSubstr;

/// Keeps what it is answered with.
class FakeExchange final : public HttpExchange {
 public:
  HttpRequest& request() override { return request_; }
  void drop_body() override {}
  void respond(HttpResponse response) override {
    status = response.status;
    body = response.body;
    ++num_ends;
  }
  void begin_stream(HttpResponse head) override { status = head.status; }
  void write(std::string_view text) override { body += text; }
  void end() override { ++num_ends; }
  bool is_closed() const override { return false; }
  void on_closed(std::function<void()>) override {}

  int status = 0;
  int num_ends = 0;
  std::string body;

 private:
  HttpRequest request_;
};

class CompletionJobTest : public testing::Test {
 protected:
  CompletionJob& start(bool stream) {
    job_ = std::make_unique<CompletionJob>(exchange_,
                                           api_.completion(stream ? R"("n":3,"stream":true)" : R"("n":3)"),
                                           "cmpl-1", 0, api_.context, metrics_);
    return *job_;
  }
  static RequestOutput output(const std::string& text, std::optional<FinishReason> finish = {}) {
    RequestOutput made;
    made.text = text;
    made.finish = finish;
    return made;
  }

  test::TestApi api_;
  Metrics metrics_{"small", EngineOptions{}};
  std::shared_ptr<FakeExchange> exchange_ = std::make_shared<FakeExchange>();
  std::unique_ptr<CompletionJob> job_;
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

}  // namespace
}  // namespace minfer
