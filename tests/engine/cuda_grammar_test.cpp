// Requests with grammars on CUDA, a step ahead and in graphs, beside free ones.
#include <regex>

#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/grammar_requests.h"
#include "tests/support/engine/tiny_engine.h"

namespace minfer {
namespace {

class CudaGrammar : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

/// Even ones have a grammar; some of these draw every token, the others take what is forced.
std::vector<Request> alternating_requests(const Engine& engine, int32_t count) {
  const auto grammar = test::grammar_for(engine, test::record_grammar());
  std::vector<Request> requests;
  for (int32_t i = 0; i < count; ++i) {
    std::vector<TokenId> prompt = test::kTinyPrompt;
    prompt.back() = 330 + i;
    Request request = test::greedy_request(std::to_string(i), prompt, 40);
    if (i % 2 == 0) {
      request = test::constrained_request(std::to_string(i), prompt, grammar, static_cast<uint64_t>(i));
      if (i % 3 == 0) request.sampling.temperature = 0.0f;
      if (i % 4 == 0) request.sampling.logprobs = 1;
      if (i % 8 == 2) request.sampling.repetition_penalty = 1.2f;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_F(CudaGrammar, TextsAreThoseOfTheGrammarAndFreeOnesStay) {
  const std::regex pattern(test::kRecordPattern);
  for (const int32_t steps_ahead : {0, 1}) {
    for (const bool graphs : {true, false}) {
      EngineOptions options = test::tiny_engine_options();
      options.device = DeviceChoice::cuda;
      options.steps_ahead = steps_ahead;
      options.cuda_graphs = graphs;
      const auto engine = test::make_tiny_engine(options);
      const std::vector<Request> requests = alternating_requests(*engine, 16);
      for (const Request& request : requests)
        engine->submit(request);
      const test::Answers answers = test::Answers().run(*engine);
      for (const Request& request : requests) {
        const test::Answer& answer = answers.at(request.id);
        if (request.grammar) {
          EXPECT_TRUE(std::regex_match(answer.text, pattern)) << request.id << ": " << answer.text;
          EXPECT_EQ(answer.last.finish, FinishReason::stop);
        } else {
          EXPECT_EQ(answer.tokens.size(), 40u) << request.id;
        }
      }
      EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
    }
  }
}

}  // namespace
}  // namespace minfer
