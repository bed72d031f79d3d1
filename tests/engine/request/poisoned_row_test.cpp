// If nothing can be drawn from a row of logits, only its request fails.
#include "tests/support/engine/poisoned_model.h"

namespace minfer {
namespace {

EngineOptions options_with(int32_t steps_ahead) {
  EngineOptions options;
  options.device = DeviceChoice::cpu;
  options.max_num_seqs = 32;
  options.num_blocks = 128;
  options.threads = 1;
  options.steps_ahead = steps_ahead;
  return options;
}

TEST(PoisonedRowTest, EndsItsRequestAlone) {
  test::expect_only_the_doomed_fail(options_with(0));
}

TEST(PoisonedRowTest, EndsItsRequestAloneAStepAhead) {
  test::expect_only_the_doomed_fail(options_with(1));
}

TEST(PoisonedRowTest, EndsItsRequestAloneInChunksAndAfterPreemptions) {
  EngineOptions options = options_with(1);
  options.max_num_batched_tokens = 5;
  test::expect_only_the_doomed_fail(options);
  options = options_with(0);
  options.block_size = 4;
  options.num_blocks = 12;
  test::expect_only_the_doomed_fail(options);
}

TEST(PoisonedRowTest, LeavesTheLogprobsOfOthersBitForBit) {
  const std::vector<std::byte> file = test::poisoned_model();
  const auto logprobs = [&](bool with_doomed) {
    Engine engine(open_model_in_memory(file, "poisoned"), options_with(0));
    for (const Request& request : test::sound_requests())
      engine.submit(request);
    if (with_doomed) {
      for (const test::DoomedRequest& each : test::doomed_requests(engine.config().vocab_size))
        engine.submit(each.request);
    }
    const test::Answers answers = test::Answers().run(engine);
    std::vector<uint32_t> bits;
    for (const Request& request : test::sound_requests()) {
      for (const SampledToken& token : answers.at(request.id).logprobs)
        bits.push_back(std::bit_cast<uint32_t>(token.logprob));
    }
    return bits;
  };
  EXPECT_EQ(logprobs(true), logprobs(false));
}

TEST(PoisonedRowTest, TokensThatCameBeforeAreAnswered) {
  const std::vector<std::byte> file = test::poisoned_model();
  Engine engine(open_model_in_memory(file, "poisoned"), options_with(1));
  Request request = test::greedy_request("a", {4, 5, 6}, 9);
  request.sampling.logit_bias = {{test::kPoison, 100.0f}};
  request.sampling.stream_interval = 100;
  const test::Answer answer = test::answer_of(engine, request);
  EXPECT_EQ(answer.tokens, std::vector<TokenId>{test::kPoison});
  EXPECT_EQ(answer.last.finish, FinishReason::error);
  EXPECT_EQ(answer.last.finish_detail,
            "no token can follow token 4 of the sequence: every logit of the model is NaN or -inf, or "
            "forbidden by the "
            "request");
}

}  // namespace
}  // namespace minfer
