// The engine's records of requests that end.
#include <map>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/engine/grammar_requests.h"
#include "tests/support/engine/tiny_engine.h"
#include "tests/support/last_steps.h"

namespace minfer {
namespace {

using test::Answers;
using test::greedy_request;

class EndedRequests final : public StepSink {
 public:
  explicit EndedRequests(Engine& engine) : engine_(engine) { engine_.recorder().add_sink(*this); }
  ~EndedRequests() override { engine_.recorder().remove_sink(*this); }
  void consume(const StepRecord&) noexcept override {}
  void consume_request(const EndedRequest& request) noexcept override {
    EXPECT_TRUE(by_id_.emplace(request.id, request).second) << request.id << " ended twice";
  }
  const EndedRequest& at(const std::string& id) const { return by_id_.at(id); }
  size_t size() const { return by_id_.size(); }

 private:
  Engine& engine_;
  std::map<std::string, EndedRequest> by_id_;
};

TEST(RequestRecords, SayWhatBecameOfEach) {
  EngineOptions options = test::tiny_engine_options();
  options.max_num_batched_tokens = 16;
  options.stream_interval = 3;
  const std::unique_ptr<Engine> engine = test::make_tiny_engine(options);
  const EndedRequests ended(*engine);
  Request request = greedy_request("a", test::kTinyPrompt, 4);  // 20 tokens: two steps
  request.priority = -3;
  engine->submit(request);
  Answers().run(*engine);
  const EndedRequest& a = ended.at("a");
  EXPECT_EQ(a.priority, -3);
  EXPECT_EQ(a.finish, "length");
  EXPECT_EQ(a.prompt_tokens, 20);
  EXPECT_EQ(a.output_tokens, 4);
  EXPECT_EQ(a.steps.first, 0);
  EXPECT_EQ(a.steps.last, 4);
  EXPECT_EQ(a.steps.prefill, 2);
  EXPECT_EQ(a.steps.decode, 3);
  EXPECT_EQ(a.stream_interval, 3);
  EXPECT_EQ(a.client_wait_ns, -1);
  EXPECT_EQ(a.num_prefixes, 1) << "of 16 tokens; the next has 32";
  EXPECT_LE(a.arrival_ns, a.first_scheduled_ns);
  EXPECT_LE(a.first_scheduled_ns, a.first_token_ns);
  EXPECT_LE(a.first_token_ns, a.end_ns);
}

TEST(RequestRecords, PromptsThatBeginAlikeHaveEqualHashes) {
  const std::unique_ptr<Engine> engine = test::make_tiny_engine();
  const EndedRequests ended(*engine);
  std::vector<TokenId> prompt(40, 300);
  engine->submit(greedy_request("a", prompt, 1));
  Answers().run(*engine);
  prompt[30] = 301;
  engine->submit(greedy_request("b", prompt, 1));
  Request salted = greedy_request("salted", prompt, 1);
  salted.cache_salt = "s";
  engine->submit(salted);
  Request scored = greedy_request("scored", prompt, 1);
  scored.sampling.prompt_logprobs = 0;
  engine->submit(scored);
  Answers().run(*engine);
  ASSERT_EQ(ended.at("b").num_prefixes, 2);
  EXPECT_EQ(ended.at("a").prefix_hashes[0], ended.at("b").prefix_hashes[0]);
  EXPECT_NE(ended.at("a").prefix_hashes[1], ended.at("b").prefix_hashes[1]);
  EXPECT_NE(ended.at("salted").prefix_hashes[0], ended.at("b").prefix_hashes[0]) << "it shares nothing";
  EXPECT_EQ(ended.at("scored").num_prefixes, 0) << "it takes nothing from the cache";
  EXPECT_EQ(ended.at("b").cached_tokens, 16);
}

TEST(RequestRecords, PreemptedTokensAreCountedAsComputedAgain) {
  EngineOptions options = test::tiny_engine_options();
  options.max_model_len = 96;
  options.num_blocks = 8;
  options.enable_prefix_caching = false;
  const std::unique_ptr<Engine> engine = test::make_tiny_engine(options);
  const EndedRequests ended(*engine);
  engine->submit(greedy_request("a", test::kTinyPrompt, 60));
  engine->submit(greedy_request("b", std::vector<TokenId>(20, 7), 60));
  Answers().run(*engine);
  const EndedRequest& b = ended.at("b");
  EXPECT_EQ(ended.at("a").recomputed_tokens, 0);
  EXPECT_GE(b.preemptions, 1);
  EXPECT_GT(b.recomputed_tokens, 20 * b.preemptions);
  EXPECT_EQ(b.steps.prefill, 1 + b.preemptions);
}

TEST(RequestRecords, RefusedAndCancelledOnesToo) {
  const std::unique_ptr<Engine> engine = test::make_tiny_engine();
  const EndedRequests ended(*engine);
  engine->submit(greedy_request("refused", {}, 4));
  const auto wait = std::make_shared<ClientWait>();
  wait->begin(1);
  Request request = greedy_request("cancelled", test::kTinyPrompt, 40);
  request.client_wait = wait;
  engine->submit(request);
  Answers answers;
  answers.step(*engine);
  answers.step(*engine);
  engine->cancel("cancelled");
  answers.run(*engine);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended.at("refused").finish, "refused");
  EXPECT_EQ(ended.at("refused").steps.first, -1);
  EXPECT_EQ(ended.at("refused").first_scheduled_ns, 0);
  EXPECT_EQ(ended.at("cancelled").finish, "cancelled");
  EXPECT_GE(ended.at("cancelled").steps.last, 0);
  EXPECT_EQ(ended.at("cancelled").client_wait_ns, ended.at("cancelled").end_ns - 1) << "it still waits";
}

TEST(RequestRecords, SayWhatAGrammarTook) {
  const std::unique_ptr<Engine> engine = test::make_tiny_engine();
  const EndedRequests ended(*engine);
  const auto grammar = test::grammar_for(*engine, test::literal("abcdef"));
  grammar->compile_ns = 1'234;
  engine->submit(test::constrained_request("a", test::kTinyPrompt, grammar));
  Request scored = test::constrained_request("b", test::kTinyPrompt, grammar);
  scored.sampling.logprobs = 0;
  engine->submit(scored);
  engine->submit(greedy_request("free", test::kTinyPrompt, 6));
  Answers().run(*engine);
  const EndedRequest& a = ended.at("a");
  EXPECT_TRUE(a.has_grammar);
  EXPECT_EQ(a.grammar_compile_ns, 1'234);
  EXPECT_GT(a.mask_ns, 0);
  EXPECT_EQ(a.forced_tokens, 5);
  EXPECT_TRUE(ended.at("b").has_grammar);
  EXPECT_EQ(ended.at("b").forced_tokens, 5);
  EXPECT_EQ(ended.at("b").output_tokens, 6);
  EXPECT_FALSE(ended.at("free").has_grammar);
  EXPECT_EQ(ended.at("free").mask_ns, 0);

  const std::vector<StepRecord> steps = test::last_steps(engine->recorder(), 100);
  ASSERT_EQ(steps.size(), 6u);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].batch.constrained_rows, i == 0 ? 2 : 0) << i;
    EXPECT_EQ(steps[i].batch.forced_tokens, i < 2 ? 5 : 0) << i;
    EXPECT_EQ(steps[i].host_ns[static_cast<size_t>(HostSpan::mask)] > 0, i == 0) << i;
    EXPECT_GE(steps[i].host_ns[static_cast<size_t>(HostSpan::commit)], 0) << i;
  }
}

}  // namespace
}  // namespace minfer
