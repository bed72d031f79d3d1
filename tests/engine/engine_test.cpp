// Requests through the whole engine: how they end, what is refused, what a response holds.
#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/engine/engine_run.h"

namespace minfer {
namespace {

using test::Answer;
using test::answer_of;
using test::Answers;
using test::greedy_request;

const std::vector<TokenId> kPrompt{300, 301, 302, 303, 304, 305, 306, 307, 308, 309,
                                   310, 311, 312, 313, 314, 315, 316, 317, 318, 319};
constexpr TokenId kEnd = 2;  // of the byte tokeniser
constexpr TokenId byte_token(char byte) {
  return 3 + byte;
}  // after <unk> <s> </s>

EngineOptions tiny_engine_options() {
  EngineOptions options;
  options.max_model_len = 128;
  options.max_num_seqs = 8;
  options.num_blocks = 64;
  options.threads = 1;
  return options;
}

std::unique_ptr<Engine> make_engine(const EngineOptions& options = tiny_engine_options()) {
  return std::make_unique<Engine>(open_model("synthetic:tiny:f32"), options);
}

/// A request whose every token is `token`.
Request forced_request(const std::string& id, TokenId token, int32_t max_tokens) {
  Request request = greedy_request(id, kPrompt, max_tokens);
  request.sampling.logit_bias = {{token, 100.0f}};
  return request;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class EngineTest : public testing::Test {
 protected:
  int32_t live_blocks() const { return engine_->scheduler().blocks().num_live(); }
  std::unique_ptr<Engine> engine_ = make_engine();
};

// Ends.

TEST_F(EngineTest, EndsAtMaxTokens) {
  for (const int32_t max_tokens : {1, 2, 17}) {
    const Answer answer = answer_of(*engine_, greedy_request("a", kPrompt, max_tokens));
    EXPECT_EQ(answer.last.finish, FinishReason::length);
    EXPECT_EQ(answer.tokens.size(), static_cast<size_t>(max_tokens));
    EXPECT_EQ(answer.last.prompt_tokens, 20);
    EXPECT_EQ(live_blocks(), 0);
  }
}

TEST_F(EngineTest, EndsWhereTheContextDoes) {
  const Answer answer = answer_of(*engine_, greedy_request("a", kPrompt, 1'000'000));
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
  const RequestOutput last = answer_of(*engine_, greedy_request("a", kPrompt, 5)).last;
  EXPECT_GT(last.arrival_ns, 0);
  EXPECT_GE(last.first_scheduled_ns, last.arrival_ns);
  EXPECT_GT(last.first_token_ns, last.first_scheduled_ns);
  EXPECT_GT(last.last_token_ns, last.first_token_ns);
}

// Cancellation.

TEST(EngineCancelTest, WhileQueuedKillsNobodyElse) {
  EngineOptions options = tiny_engine_options();
  options.max_num_seqs = 1;
  const auto engine = make_engine(options);
  const Answer alone = answer_of(*engine, greedy_request("running", kPrompt, 12));
  engine->submit(greedy_request("running", kPrompt, 12));
  engine->submit(greedy_request("queued", kPrompt, 12));
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
  const auto engine = make_engine(options);
  engine->submit(greedy_request("a", kPrompt, 12));
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
  const auto engine = make_engine();
  Request request = greedy_request("a", kPrompt, 50);
  const Answer alone = answer_of(*engine, request);
  request.sampling.stream_interval = 100;
  engine->submit(request);
  engine->submit(greedy_request("b", kPrompt, 12));
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
  answer_of(*engine_, greedy_request("a", kPrompt, 2));
  engine_->cancel("a");
  EXPECT_FALSE(engine_->has_work());
  engine_->submit(greedy_request("refused", {}, 2));
  engine_->cancel("refused");
  EXPECT_EQ(Answers().run(*engine_).at("refused").last.finish, FinishReason::refused);
}

// Refusals and errors.

TEST_F(EngineTest, PromptsThatCanNeverRunAreAnsweredAndNamed) {
  engine_->submit(greedy_request("empty", {}, 4));
  engine_->submit(greedy_request("long", std::vector<TokenId>(128, 300), 4));
  engine_->submit(greedy_request("fits", std::vector<TokenId>(127, 300), 4));
  const Answers answers = Answers().run(*engine_);
  EXPECT_EQ(answers.at("empty").last.finish, FinishReason::refused);
  EXPECT_EQ(answers.at("empty").last.finish_detail, "the prompt has no tokens");
  EXPECT_EQ(answers.at("long").last.finish, FinishReason::refused);
  EXPECT_NE(answers.at("long").last.finish_detail.find("max_model_len = 128"), std::string::npos);
  EXPECT_EQ(answers.at("fits").last.finish, FinishReason::length);
  EXPECT_EQ(answers.at("fits").tokens.size(), 1u);
}

TEST(EngineRefusalTest, APromptOverTheKvCapacityDoesNotBlockTheQueue) {
  EngineOptions options = tiny_engine_options();
  options.max_model_len = 0;
  options.num_blocks = 3;  // 48 tokens, far below the model's context
  const auto engine = make_engine(options);
  engine->submit(greedy_request("large", std::vector<TokenId>(49, 300), 4));
  engine->submit(greedy_request("small", kPrompt, 1000));
  const Answers answers = Answers().run(*engine);
  EXPECT_EQ(answers.at("large").last.finish, FinishReason::refused);
  EXPECT_NE(answers.at("large").last.finish_detail.find("48"), std::string::npos);
  EXPECT_EQ(answers.at("small").last.output_tokens, 28);
}

TEST_F(EngineTest, AnIdIsInUseUntilItsAnswer) {
  engine_->submit(greedy_request("twin", kPrompt, 3));
  EXPECT_NE(error_of([&] { engine_->submit(greedy_request("twin", kPrompt, 3)); }).find("\"twin\""),
            std::string::npos);
  EXPECT_EQ(Answers().run(*engine_).at("twin").tokens.size(), 3u);
  EXPECT_EQ(answer_of(*engine_, greedy_request("twin", kPrompt, 2)).tokens.size(), 2u);
  engine_->submit(greedy_request("refused", {}, 3));
  EXPECT_THROW(engine_->submit(greedy_request("refused", kPrompt, 3)), Error);
}

TEST_F(EngineTest, TokensOutsideTheVocabularyAreRefused) {
  for (const TokenId token : {-1, 512, INT32_MAX}) {
    const std::string message = error_of([&] { engine_->submit(greedy_request("a", {300, token}, 3)); });
    EXPECT_EQ(message, fmt::format("prompt: token {} is not in the vocabulary of 512", token));
  }
  EXPECT_FALSE(engine_->has_work());
}

TEST_F(EngineTest, BadParametersAreNamed) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto expect_named = [&](const char* field, const std::function<void(SamplingParams&)>& spoil) {
    Request request = greedy_request("a", kPrompt, 3);
    spoil(request.sampling);
    EXPECT_EQ(error_of([&] { engine_->submit(request); }).rfind(field, 0), 0u) << field;
  };
  const std::pair<const char*, float SamplingParams::*> reals[] = {
      {"temperature", &SamplingParams::temperature},
      {"top_p", &SamplingParams::top_p},
      {"min_p", &SamplingParams::min_p},
      {"repetition_penalty", &SamplingParams::repetition_penalty},
      {"presence_penalty", &SamplingParams::presence_penalty},
      {"frequency_penalty", &SamplingParams::frequency_penalty}};
  for (const auto& [field, member] : reals) {
    for (const float bad : {kNan, kInfinity, -kInfinity, -2.5f, 1e30f})
      expect_named(field, [bad, target = member](SamplingParams& params) { params.*target = bad; });
  }
  const std::pair<const char*, int32_t SamplingParams::*> integers[] = {
      {"top_k", &SamplingParams::top_k},
      {"max_tokens", &SamplingParams::max_tokens},
      {"min_tokens", &SamplingParams::min_tokens},
      {"logprobs", &SamplingParams::logprobs},
      {"stream_interval", &SamplingParams::stream_interval}};
  for (const auto& [field, member] : integers) {
    for (const int32_t bad : {-2, INT32_MIN})
      expect_named(field, [bad, target = member](SamplingParams& params) { params.*target = bad; });
  }
  expect_named("max_tokens", [](SamplingParams& params) { params.max_tokens = 0; });
  expect_named("min_tokens", [](SamplingParams& params) { params.min_tokens = 4; });
  expect_named("logprobs", [](SamplingParams& params) { params.logprobs = INT32_MAX; });
  expect_named("logit_bias", [](SamplingParams& params) { params.logit_bias = {{512, 1.0f}}; });
  expect_named("logit_bias", [](SamplingParams& params) { params.logit_bias = {{-1, 1.0f}}; });
  expect_named("logit_bias", [](SamplingParams& params) { params.logit_bias = {{5, kNan}}; });
  expect_named("stop_token_ids", [](SamplingParams& params) { params.stop_token_ids = {512}; });
  expect_named("stop", [](SamplingParams& params) { params.stop = {"x", ""}; });
  EXPECT_FALSE(engine_->has_work());
}

TEST(EngineOptionsTest, OptionsThatCannotBeMetAreNamed) {
  const auto expect_named = [](const char* option, const std::function<void(EngineOptions&)>& spoil) {
    EngineOptions options = tiny_engine_options();
    spoil(options);
    EXPECT_EQ(error_of([&] { make_engine(options); }).rfind(option, 0), 0u) << option;
  };
  expect_named("max-model-len", [](EngineOptions& options) { options.max_model_len = 2049; });
  expect_named("max-model-len", [](EngineOptions& options) { options.max_model_len = -1; });
  expect_named("max-model-len", [](EngineOptions& options) { options.num_blocks = 7; });
  expect_named("max-num-seqs", [](EngineOptions& options) { options.max_num_seqs = 0; });
  expect_named("max-num-batched-tokens", [](EngineOptions& options) { options.max_num_batched_tokens = 0; });
  expect_named("block-size", [](EngineOptions& options) { options.block_size = 0; });
  expect_named("num-blocks", [](EngineOptions& options) { options.num_blocks = -1; });
  expect_named("kv-cache-bytes", [](EngineOptions& options) { options.kv_cache_bytes = -1; });
  expect_named("stream-interval", [](EngineOptions& options) { options.stream_interval = 0; });
  expect_named("threads", [](EngineOptions& options) { options.threads = -1; });
  expect_named("dtype", [](EngineOptions& options) { options.dtype = DType::bf16; });
  expect_named("gpu-memory-utilization",
               [](EngineOptions& options) { options.gpu_memory_utilization = 0.0; });
  expect_named("kv-cache-dtype", [](EngineOptions& options) { options.kv_cache_dtype = DType::q8_0; });
  expect_named("max_num_batched_tokens", [](EngineOptions& options) {
    options.enable_chunked_prefill = false;
    options.max_num_batched_tokens = 127;
  });
}

// Sampling.

TEST_F(EngineTest, ASeedRepeatsItsOutputWhateverRunsBeside) {
  Request request = greedy_request("seeded", kPrompt, 20);
  request.sampling.temperature = 1.0f;
  request.sampling.seed = 42;
  const Answer alone = answer_of(*engine_, request);
  for (int i = 0; i < 5; ++i) {
    Request other = greedy_request(std::to_string(i), kPrompt, 20 + i);
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
    const auto engine = make_engine(options);
    for (const char* id : {"a", "b"}) {
      Request request = greedy_request(id, kPrompt, 20);
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
  Request request = greedy_request("a", kPrompt, 9);
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
  const auto engine = make_engine(options);
  for (const auto& [id, priority] : {std::pair{"low", 5}, {"middle", 0}, {"high", -3}}) {
    Request request = greedy_request(id, kPrompt, 4);
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
  const auto engine = make_engine(options);
  for (const int32_t interval : {0, 1, 5, 100}) {
    Request request = greedy_request(std::to_string(interval), kPrompt, 12);
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
    const auto engine = make_engine(options);
    const Answer cold = answer_of(*engine, greedy_request("cold", kPrompt, 4));
    const Answer warm = answer_of(*engine, greedy_request("warm", kPrompt, 4));
    EXPECT_EQ(cold.last.cached_tokens, 0);
    EXPECT_EQ(warm.last.cached_tokens, enabled ? 16 : 0);
    EXPECT_EQ(warm.tokens, cold.tokens);
  }
}

TEST(EnginePrefixCacheTest, IsSharedAmongRequestsOfOneSalt) {
  const auto engine = make_engine();
  int32_t num_requests = 0;
  const auto cached_tokens = [&](const std::string& salt) {
    Request request = greedy_request(std::to_string(num_requests++), kPrompt, 4);
    request.cache_salt = salt;
    return answer_of(*engine, request).last.cached_tokens;
  };
  for (const char* salt : {"", "tenant a", "tenant b"}) {
    SCOPED_TRACE(salt);
    EXPECT_EQ(cached_tokens(salt), 0);
    EXPECT_EQ(cached_tokens(salt), 16);
  }
  Request request = greedy_request("long", kPrompt, 4);
  request.cache_salt = std::string(kMaxCacheSaltBytes + 1, 's');
  EXPECT_THROW(engine->submit(request), Error);
}

/// What the first block of kPrompt hashes to in an engine.
uint64_t first_block_hash(std::optional<uint64_t> key) {
  EngineOptions options = tiny_engine_options();
  options.prefix_hash_key = key;
  const auto engine = make_engine(options);
  engine->submit(greedy_request("a", kPrompt, 4));
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
