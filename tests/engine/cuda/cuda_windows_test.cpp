// Models with windows in some layers and full attention in others, on CUDA: two block tables reach the kernels, also in graphs.
#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

class CudaWindows : public testing::TestWithParam<std::string> {
 protected:
  static EngineOptions options() {
    EngineOptions options;
    options.device = DeviceChoice::cuda;
    options.max_model_len = 256;
    options.max_num_seqs = 8;
    options.num_blocks = 400;
    options.block_size = 8;
    options.max_num_batched_tokens = 64;
    options.enable_prefix_caching = false;
    return options;
  }

  /// Answers of sequences that are far longer than the windows of 8 tokens, and that begin and end at different steps.
  test::Answers run(const EngineOptions& options, int64_t& num_graphs) const {
    Engine engine(open_model(source_path("tests/golden/") + GetParam() + ".gguf"), options);
    for (int32_t i = 0; i < 7; ++i) {
      std::vector<TokenId> prompt;
      for (int32_t k = 0; k < 5 + 13 * i; ++k)
        prompt.push_back((k < 40 ? 3 + 5 * k : 7 + 11 * k + i) % engine.config().vocab_size);
      Request request = test::greedy_request(std::to_string(i), std::move(prompt), 60 + 15 * i);
      request.sampling.logprobs = 0;
      engine.submit(request);
    }
    test::Answers answers;
    answers.run(engine);
    EXPECT_EQ(engine.scheduler().blocks().num_live(), 0);
    num_graphs = 0;
    for (const StepRecord& record : engine.recorder().after(-1))
      num_graphs += record.batch.graph_batch > 0;
    return answers;
  }

  static void expect_same(const test::Answers& found, const test::Answers& expected, const char* what) {
    for (const auto& [id, answer] : expected.all()) {
      EXPECT_EQ(found.at(id).tokens, answer.tokens) << what << ", request " << id;
      ASSERT_EQ(found.at(id).logprobs.size(), answer.logprobs.size());
      for (size_t i = 0; i < answer.logprobs.size(); ++i)
        EXPECT_NEAR(found.at(id).logprobs[i].logprob, answer.logprobs[i].logprob, 1e-4) << what;
    }
  }
};

TEST_P(CudaWindows, TwoTablesGiveWhatOneGives) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  for (const int32_t steps_ahead : {0, 1}) {
    EngineOptions one = options();
    one.steps_ahead = steps_ahead;
    EngineOptions two = one;
    one.kv_layout = KvLayout{};
    const ModelConfig config = open_model(source_path("tests/golden/") + GetParam() + ".gguf")->config();
    two.kv_layout = KvLayout::of(config, two.max_model_len, two.block_size);
    ASSERT_TRUE(two.kv_layout->has_window_table);
    EngineOptions eager = two;
    eager.cuda_graphs = false;
    int64_t num_graphs = 0, num_eager_graphs = 0;
    const test::Answers expected = run(one, num_graphs);
    expect_same(run(two, num_graphs), expected, "graphs");
    EXPECT_GT(num_graphs, 20);
    expect_same(run(eager, num_eager_graphs), expected, "no graphs");
    EXPECT_EQ(num_eager_graphs, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaWindows,
                         testing::Values("gemma2", "gemma3", "gemma3n", "gemma4", "gpt-oss", "command-r7b",
                                         "olmo3", "llama4"),
                         [](const auto& model) {
                           std::string label = model.param;
                           std::ranges::replace(label, '-', '_');
                           return label;
                         });

}  // namespace
}  // namespace minfer
