// Steps that compute only short prompts replay graphs on CUDA, with the same results as without graphs.
#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

struct PromptRun {
  test::Answers answers;
  int64_t num_graphs = 0;  ///< steps of prompts that replayed graphs
  int64_t num_eager = 0;
};

/// Groups of requests, each answered before the next one comes: their prompts form steps of their own.
PromptRun answer_in_groups(const EngineOptions& options, int32_t groups, int32_t group_size) {
  Engine engine(open_model(source_path("tests/golden/mistral.gguf")), options);
  PromptRun run;
  for (int32_t g = 0; g < groups; ++g) {
    for (int32_t i = 0; i < group_size; ++i) {
      std::vector<TokenId> prompt;
      for (int32_t k = 0; k < 9 + (5 * g + 3 * i) % 40; ++k)
        prompt.push_back(3 + (11 * g + 7 * i + 13 * k) % 200);
      Request request =
          test::greedy_request(std::to_string(g) + "." + std::to_string(i), std::move(prompt), 6);
      request.sampling.logprobs = 0;
      if (i % 2 == 1) {
        request.sampling.temperature = 0.7f;
        request.sampling.top_p = 0.8f;
        request.sampling.seed = static_cast<uint64_t>(g);
      }
      engine.submit(request);
    }
    while (engine.has_work())
      run.answers.step(engine);
  }
  for (const StepRecord& record : engine.recorder().after(-1)) {
    if (record.batch.phase() == StepPhase::prefill)
      (record.batch.graph_batch > 0 ? run.num_graphs : run.num_eager) += 1;
  }
  return run;
}

TEST(CudaPromptGraphs, EqualEagerStepsForManyPrompts) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  for (const int32_t group_size : {1, 2, 3, 5}) {
    for (const int32_t budget : {512, 16}) {  // 16: prompts in pieces, most of which draw nothing
      EngineOptions options;
      options.device = DeviceChoice::cuda;
      options.max_model_len = 256;
      options.max_num_seqs = 8;
      options.num_blocks = 600;
      options.block_size = 8;
      options.enable_prefix_caching = false;
      options.max_num_batched_tokens = budget;
      const PromptRun graphs = answer_in_groups(options, 30, group_size);
      options.cuda_graphs = false;
      const PromptRun eager = answer_in_groups(options, 30, group_size);
      EXPECT_EQ(eager.num_graphs, 0);
      EXPECT_GT(graphs.num_graphs, 10);
      EXPECT_GT(graphs.num_eager, 0) << "each kind once";
      for (const auto& [id, answer] : eager.answers.all()) {
        EXPECT_EQ(graphs.answers.at(id).tokens, answer.tokens)
            << "groups of " << group_size << ", request " << id;
        ASSERT_EQ(graphs.answers.at(id).logprobs.size(), answer.logprobs.size());
        for (size_t i = 0; i < answer.logprobs.size(); ++i)
          EXPECT_NEAR(graphs.answers.at(id).logprobs[i].logprob, answer.logprobs[i].logprob, 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace minfer
