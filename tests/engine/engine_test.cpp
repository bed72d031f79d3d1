// Requests through the whole engine: how they end, and the content of responses.
#include "engine/engine.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/engine/engine_run.h"
#include "tests/support/engine/tiny_engine.h"

namespace minfer {
namespace {

using test::Answer;
using test::answer_of;
using test::Answers;
using test::greedy_request;
using test::kTinyPrompt;
using test::make_tiny_engine;
using test::tiny_engine_options;

constexpr TokenId kEnd = 2;  // of the byte tokeniser
/// Byte tokens follow <unk> <s> </s>.
constexpr TokenId byte_token(char byte) {
  return 3 + byte;
}

/// A request whose every token is `token`.
Request forced_request(const std::string& id, TokenId token, int32_t max_tokens) {
  Request request = greedy_request(id, kTinyPrompt, max_tokens);
  request.sampling.logit_bias = {{token, 100.0f}};
  return request;
}

class EngineTest : public testing::Test {
 protected:
  int32_t live_blocks() const { return engine_->scheduler().blocks().num_live(); }
  std::unique_ptr<Engine> engine_ = make_tiny_engine();
};

// Ends.

TEST_F(EngineTest, EndsAtMaxTokens) {
  for (const int32_t max_tokens : {1, 2, 17}) {
    const Answer answer = answer_of(*engine_, greedy_request("a", kTinyPrompt, max_tokens));
    EXPECT_EQ(answer.last.finish, FinishReason::length);
    EXPECT_EQ(answer.tokens.size(), static_cast<size_t>(max_tokens));
    EXPECT_EQ(answer.last.prompt_tokens, 20);
    EXPECT_EQ(live_blocks(), 0);
  }
}

TEST_F(EngineTest, EndsWhereTheContextDoes) {
  const Answer answer = answer_of(*engine_, greedy_request("a", kTinyPrompt, 1'000'000));
  EXPECT_EQ(answer.last.finish, FinishReason::length);
  EXPECT_EQ(answer.last.output_tokens, 128 - 20);
}

TEST_F(EngineTest, EndsAtTheEndTokenAndDoesNotShowIt) {
  Request request = forced_request("a", kEnd, 10);
  request.sampling.ignore_eos = false;
  request.sampling.skip_special_tokens = false;
  const Answer answer = answer_of(*engine_, request);
  EXPECT_EQ(answer.last.finish, FinishReason::stop);
  EXPECT_EQ(answer.tokens, std::vector<TokenId>{kEnd});
  EXPECT_EQ(answer.text, "");
}

TEST_F(EngineTest, IgnoreEosGoesOn) {
  const Answer answer = answer_of(*engine_, forced_request("a", kEnd, 10));
  EXPECT_EQ(answer.last.finish, FinishReason::length);
  EXPECT_EQ(answer.tokens, std::vector<TokenId>(10, kEnd));
}

TEST_F(EngineTest, EndsAtAStopTokenEvenIfEosIsIgnored) {
  Request request = forced_request("a", byte_token('x'), 10);
  request.sampling.stop_token_ids = {byte_token('y'), byte_token('x')};
  const Answer answer = answer_of(*engine_, request);
  EXPECT_EQ(answer.last.finish, FinishReason::stop);
  EXPECT_EQ(answer.tokens.size(), 1u);
  EXPECT_EQ(answer.text, "");
}

TEST_F(EngineTest, AStopTokenIsShownIfTheRequestWantsThat) {
  for (const bool include : {false, true}) {
    Request request = forced_request("a", byte_token('x'), 10);
    request.sampling.stop_token_ids = {byte_token('x')};
    request.sampling.include_stop_in_output = include;
    EXPECT_EQ(answer_of(*engine_, request).text, include ? "x" : "");
    request = forced_request("a", kEnd, 10);
    request.sampling.ignore_eos = false;
    request.sampling.skip_special_tokens = false;
    request.sampling.include_stop_in_output = include;
    EXPECT_EQ(answer_of(*engine_, request).text, "") << "an end that the request does not name";
  }
}

TEST_F(EngineTest, MinTokensForbidsEndAndStopTokensExactlyUntilThen) {
  for (const TokenId ending : {kEnd, byte_token('x')}) {
    Request request = forced_request("a", ending, 10);
    request.sampling.ignore_eos = false;
    request.sampling.stop_token_ids = {byte_token('x')};
    request.sampling.min_tokens = 3;
    const Answer answer = answer_of(*engine_, request);
    EXPECT_EQ(answer.last.finish, FinishReason::stop);
    ASSERT_EQ(answer.tokens.size(), 4u);
    EXPECT_EQ(std::ranges::count(answer.tokens, ending), 1);
    EXPECT_EQ(answer.tokens.back(), ending);
  }
}

TEST_F(EngineTest, EndsAtAStopStringAcrossTokens) {
  Request request = forced_request("a", byte_token('x'), 10);
  request.sampling.stop = {"yy", "xxx"};
  for (const bool include : {false, true}) {
    request.sampling.include_stop_in_output = include;
    const Answer answer = answer_of(*engine_, request);
    EXPECT_EQ(answer.last.finish, FinishReason::stop);
    EXPECT_EQ(answer.last.finish_detail, "xxx");
    EXPECT_EQ(answer.tokens.size(), 3u);
    EXPECT_EQ(answer.text, include ? "xxx" : "");
    EXPECT_EQ(live_blocks(), 0);
  }
}

TEST_F(EngineTest, MinTokensHoldsBackStopStringsThatEndWithinThem) {
  Request request = forced_request("a", byte_token('x'), 10);
  request.sampling.stop = {"xxx"};
  for (const int32_t min_tokens : {2, 3, 4}) {
    request.sampling.min_tokens = min_tokens;
    const Answer answer = answer_of(*engine_, request);
    EXPECT_EQ(answer.last.finish, FinishReason::stop);
    EXPECT_EQ(answer.tokens.size(), static_cast<size_t>(min_tokens) + 1);
    EXPECT_EQ(answer.text, std::string(static_cast<size_t>(min_tokens) - 2, 'x'));
  }
}

TEST_F(EngineTest, AStopStringInTheLastTokenIsTheReason) {
  Request request = forced_request("a", byte_token('x'), 3);
  request.sampling.stop = {"xxx"};
  EXPECT_EQ(answer_of(*engine_, request).last.finish, FinishReason::stop);
}

TEST_F(EngineTest, TimesAreInOrder) {
  const RequestOutput last = answer_of(*engine_, greedy_request("a", kTinyPrompt, 5)).last;
  EXPECT_GT(last.arrival_ns, 0);
  EXPECT_GE(last.first_scheduled_ns, last.arrival_ns);
  EXPECT_GT(last.first_token_ns, last.first_scheduled_ns);
  EXPECT_GT(last.last_token_ns, last.first_token_ns);
}

// Cancellation.

TEST(EngineCancelTest, WhileQueuedKillsNobodyElse) {
  EngineOptions options = tiny_engine_options();
  options.max_num_seqs = 1;
  const auto engine = make_tiny_engine(options);
  const Answer alone = answer_of(*engine, greedy_request("running", kTinyPrompt, 12));
  engine->submit(greedy_request("running", kTinyPrompt, 12));
  engine->submit(greedy_request("queued", kTinyPrompt, 12));
  Answers answers;
  answers.step(*engine);
  answers.step(*engine);
  engine->cancel("queued");
  answers.step(*engine);
  EXPECT_EQ(answers.at("queued").last.finish, FinishReason::cancelled);
  EXPECT_EQ(answers.at("queued").last.output_tokens, 0);
  answers.run(*engine);
  EXPECT_EQ(answers.at("running").last.finish, FinishReason::length);
  EXPECT_EQ(answers.at("running").tokens, alone.tokens);
}

TEST(EngineCancelTest, WhilePrefillingFreesItsBlocksAtOnce) {
  EngineOptions options = tiny_engine_options();
  options.max_num_batched_tokens = 8;
  const auto engine = make_tiny_engine(options);
  engine->submit(greedy_request("a", kTinyPrompt, 12));
  Answers answers;
  answers.step(*engine);
  EXPECT_GT(engine->scheduler().blocks().num_live(), 0);
  engine->cancel("a");
  EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
  EXPECT_TRUE(engine->has_work()) << "it is not answered yet";
  answers.run(*engine);
  EXPECT_EQ(answers.at("a").last.finish, FinishReason::cancelled);
  EXPECT_TRUE(answers.at("a").tokens.empty());
}

TEST(EngineCancelTest, WhileDecodingAnswersWithWhatThereIs) {
  const auto engine = make_tiny_engine();
  Request request = greedy_request("a", kTinyPrompt, 50);
  const Answer alone = answer_of(*engine, request);
  request.sampling.stream_interval = 100;
  engine->submit(request);
  engine->submit(greedy_request("b", kTinyPrompt, 12));
  Answers answers;
  for (int i = 0; i < 5; ++i)
    answers.step(*engine);
  EXPECT_EQ(answers.at("a").tokens.size(), 1u) << "the others wait for the interval";
  engine->cancel("a");
  engine->cancel("a");
  answers.run(*engine);
  EXPECT_EQ(answers.at("a").last.finish, FinishReason::cancelled);
  ASSERT_EQ(answers.at("a").tokens.size(), 5u);
  EXPECT_TRUE(std::equal(answers.at("a").tokens.begin(), answers.at("a").tokens.end(), alone.tokens.begin()));
  EXPECT_EQ(answers.at("b").tokens.size(), 12u);
}

TEST_F(EngineTest, CancellingWhatIsUnknownFinishedOrRefusedDoesNothing) {
  engine_->cancel("nobody");
  EXPECT_FALSE(engine_->has_work());
  answer_of(*engine_, greedy_request("a", kTinyPrompt, 2));
  engine_->cancel("a");
  EXPECT_FALSE(engine_->has_work());
  engine_->submit(greedy_request("refused", {}, 2));
  engine_->cancel("refused");
  EXPECT_EQ(Answers().run(*engine_).at("refused").last.finish, FinishReason::refused);
}

// Sampling.

TEST_F(EngineTest, ASeedRepeatsItsOutputWhateverRunsBeside) {
  Request request = greedy_request("seeded", kTinyPrompt, 20);
  request.sampling.temperature = 1.0f;
  request.sampling.seed = 42;
  const Answer alone = answer_of(*engine_, request);
  for (int i = 0; i < 5; ++i) {
    Request other = greedy_request(std::to_string(i), kTinyPrompt, 20 + i);
    other.sampling.temperature = 1.0f;
    engine_->submit(other);
  }
  engine_->submit(request);
  EXPECT_EQ(Answers().run(*engine_).at("seeded").tokens, alone.tokens);
  request.sampling.seed = 43;
  EXPECT_NE(answer_of(*engine_, request).tokens, alone.tokens);
}

TEST(EngineSeedTest, RequestsWithoutSeedDifferAndTheEnginesSeedRepeatsThem) {
  const auto outputs_of = [](uint64_t seed) {
    EngineOptions options = tiny_engine_options();
    options.seed = seed;
    const auto engine = make_tiny_engine(options);
    for (const char* id : {"a", "b"}) {
      Request request = greedy_request(id, kTinyPrompt, 20);
      request.sampling.temperature = 1.0f;
      engine->submit(request);
    }
    const Answers answers = Answers().run(*engine);
    return std::pair(answers.at("a").tokens, answers.at("b").tokens);
  };
  const auto first = outputs_of(1);
  EXPECT_NE(first.first, first.second);
  EXPECT_EQ(outputs_of(1), first);
  EXPECT_NE(outputs_of(2).first, first.first);
}

TEST_F(EngineTest, APenaltyOnWhatWasSaidChangesTheText) {
  Request request = forced_request("a", byte_token('x'), 6);
  request.sampling.logit_bias = {{byte_token('x'), 60.0f}};
  EXPECT_EQ(answer_of(*engine_, request).text, "xxxxxx");
  request.sampling.repetition_penalty = 100.0f;
  const std::string text = answer_of(*engine_, request).text;
  EXPECT_EQ(text.find('x'), 0u);
  EXPECT_EQ(text.find('x', 1), std::string::npos);
}

TEST_F(EngineTest, LogprobsOfEveryToken) {
  Request request = greedy_request("a", kTinyPrompt, 9);
  request.sampling.logprobs = 3;
  const Answer answer = answer_of(*engine_, request);
  ASSERT_EQ(answer.logprobs.size(), 9u);
  for (size_t i = 0; i < answer.logprobs.size(); ++i) {
    const SampledToken& token = answer.logprobs[i];
    EXPECT_EQ(token.token, answer.tokens[i]);
    ASSERT_EQ(token.top.size(), 3u);
    EXPECT_EQ(token.top[0].token, token.token) << "greedy takes the likeliest";
    EXPECT_EQ(token.top[0].logprob, token.logprob);
    EXPECT_LE(token.logprob, 0.0f);
    EXPECT_GE(token.top[0].logprob, token.top[1].logprob);
    EXPECT_GE(token.top[1].logprob, token.top[2].logprob);
    double probability = 0.0;
    for (const TokenLogprob& top : token.top)
      probability += std::exp(top.logprob);
    EXPECT_LE(probability, 1.0 + 1e-5);
  }
}

// Order of service, streaming, prefix cache.

std::vector<std::string> order_of_service(SchedulingPolicy policy) {
  EngineOptions options = tiny_engine_options();
  options.policy = policy;
  options.max_num_seqs = 1;
  const auto engine = make_tiny_engine(options);
  for (const auto& [id, priority] : {std::pair{"low", 5}, {"middle", 0}, {"high", -3}}) {
    Request request = greedy_request(id, kTinyPrompt, 4);
    request.priority = priority;
    engine->submit(request);
  }
  std::vector<std::string> order;
  while (engine->has_work()) {
    for (const RequestOutput& output : engine->step()) {
      if (output.finish) order.push_back(output.id);
    }
  }
  return order;
}

TEST(EnginePolicyTest, PriorityCountsUnderThePriorityPolicyOnly) {
  EXPECT_EQ(order_of_service(SchedulingPolicy::fcfs), (std::vector<std::string>{"low", "middle", "high"}));
  EXPECT_EQ(order_of_service(SchedulingPolicy::priority),
            (std::vector<std::string>{"high", "middle", "low"}));
}

TEST(EngineStreamTest, EachRequestHasItsInterval) {
  EngineOptions options = tiny_engine_options();
  options.stream_interval = 2;
  const auto engine = make_tiny_engine(options);
  for (const int32_t interval : {0, 1, 5, 100}) {
    Request request = greedy_request(std::to_string(interval), kTinyPrompt, 12);
    request.sampling.stream_interval = interval;
    engine->submit(request);
  }
  const Answers answers = Answers().run(*engine);
  const std::vector<size_t> by_two{1, 2, 2, 2, 2, 2, 1};
  EXPECT_EQ(answers.at("0").response_sizes, by_two);
  EXPECT_EQ(answers.at("1").response_sizes, by_two) << "no shorter than the engine's";
  EXPECT_EQ(answers.at("5").response_sizes, (std::vector<size_t>{1, 5, 5, 1}));
  EXPECT_EQ(answers.at("100").response_sizes, (std::vector<size_t>{1, 11}));
  for (const char* id : {"1", "5", "100"}) {
    EXPECT_EQ(answers.at(id).text, answers.at("0").text);
    EXPECT_EQ(answers.at(id).tokens, answers.at("0").tokens);
  }
}

TEST(EnginePrefixCacheTest, HitsAreReported) {
  for (const bool enabled : {true, false}) {
    EngineOptions options = tiny_engine_options();
    options.enable_prefix_caching = enabled;
    const auto engine = make_tiny_engine(options);
    const Answer cold = answer_of(*engine, greedy_request("cold", kTinyPrompt, 4));
    const Answer warm = answer_of(*engine, greedy_request("warm", kTinyPrompt, 4));
    EXPECT_EQ(cold.last.cached_tokens, 0);
    EXPECT_EQ(warm.last.cached_tokens, enabled ? 16 : 0);
    EXPECT_EQ(warm.tokens, cold.tokens);
  }
}

TEST(EnginePrefixCacheTest, IsSharedAmongRequestsOfOneSalt) {
  const auto engine = make_tiny_engine();
  int32_t num_requests = 0;
  const auto cached_tokens = [&](const std::string& salt) {
    Request request = greedy_request(std::to_string(num_requests++), kTinyPrompt, 4);
    request.cache_salt = salt;
    return answer_of(*engine, request).last.cached_tokens;
  };
  for (const char* salt : {"", "tenant a", "tenant b"}) {
    SCOPED_TRACE(salt);
    EXPECT_EQ(cached_tokens(salt), 0);
    EXPECT_EQ(cached_tokens(salt), 16);
  }
  Request request = greedy_request("long", kTinyPrompt, 4);
  request.cache_salt = std::string(kMaxCacheSaltBytes + 1, 's');
  EXPECT_THROW(engine->submit(request), Error);
}

/// The hash of the first block of kTinyPrompt in an engine.
uint64_t first_block_hash(std::optional<uint64_t> key) {
  EngineOptions options = tiny_engine_options();
  options.prefix_hash_key = key;
  const auto engine = make_tiny_engine(options);
  engine->submit(greedy_request("a", kTinyPrompt, 4));
  engine->step();
  return engine->scheduler().running().front()->block_hashes.at(0);
}

TEST(EnginePrefixCacheTest, HashesBeginWithAKeyThatNobodyKnows) {
  EXPECT_EQ(first_block_hash(7), first_block_hash(7));
  EXPECT_NE(first_block_hash(7), first_block_hash(8));
  EXPECT_NE(first_block_hash(std::nullopt), first_block_hash(std::nullopt));
}

}  // namespace
}  // namespace minfer
