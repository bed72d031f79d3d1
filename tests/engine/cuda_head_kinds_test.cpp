// Models whose layers have heads of two sizes and numbers of KV heads, on CUDA: each kind has a plan of its own, by graphs too.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/evaluator.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

/// Heads of 256 with a window of 64, and of 512: the sizes that have kernels on tensor cores.
const std::string kWide = "synthetic:tiny-wide:bf16";
/// Heads of 16 and 48.
const std::string kNarrow = source_path("tests/golden/gemma4.gguf");
constexpr int32_t kVocabulary = 250;

std::vector<TokenId> tokens_from(int32_t first, int32_t count) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i)
    tokens.push_back(1 + (first + 11 * i + 7 * i * i) % (kVocabulary - 1));
  return tokens;
}

EngineOptions options_of(DType dtype) {
  EngineOptions options;
  options.device = DeviceChoice::cuda;
  options.dtype = dtype;
  options.max_model_len = 256;
  options.max_num_seqs = 8;
  options.num_blocks = 256;
  options.max_num_batched_tokens = 64;
  options.enable_prefix_caching = false;
  return options;
}

std::vector<float> logits_of(const std::string& model, std::span<const TokenId> tokens, DeviceChoice device,
                             DType dtype) {
  const std::unique_ptr<ModelSource> source = open_model(model);
  EngineOptions options = options_of(dtype);
  options.device = device;
  Evaluator evaluator(*source, options);
  std::vector<float> logits;
  evaluator.run(tokens, 0, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

/// Prompts of every length, which begin and end at different steps: up to `sequences` of them decode at a time.
test::Answers serve(const std::string& model, const EngineOptions& options, int32_t sequences,
                    int64_t& num_graphs) {
  Engine engine(open_model(model), options);
  for (int32_t i = 0; i < sequences; ++i) {
    Request request = test::greedy_request(std::to_string(i), tokens_from(3 * i, 5 + 13 * i), 60 + 15 * i);
    request.sampling.logprobs = 0;
    engine.submit(request);
  }
  test::Answers answers;
  answers.run(engine);
  num_graphs = 0;
  for (const StepRecord& record : engine.recorder().after(-1))
    num_graphs += record.batch.graph_batch > 0;
  return answers;
}

class CudaHeadKinds : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaHeadKinds, GraphsGiveWhatEagerStepsGive) {
  for (const int32_t steps_ahead : {0, 1}) {
    EngineOptions options = options_of(DType::f32);
    options.steps_ahead = steps_ahead;
    int64_t num_graphs = 0, num_eager_graphs = 0;
    const test::Answers found = serve(kNarrow, options, 7, num_graphs);
    options.cuda_graphs = false;
    const test::Answers expected = serve(kNarrow, options, 7, num_eager_graphs);
    EXPECT_GT(num_graphs, 20);
    EXPECT_EQ(num_eager_graphs, 0);
    for (const auto& [id, answer] : expected.all()) {
      EXPECT_EQ(found.at(id).tokens, answer.tokens) << "request " << id;
      ASSERT_EQ(found.at(id).logprobs.size(), answer.logprobs.size());
      for (size_t i = 0; i < answer.logprobs.size(); ++i)
        EXPECT_NEAR(found.at(id).logprobs[i].logprob, answer.logprobs[i].logprob, 1e-4) << "request " << id;
    }
  }
}

TEST_F(CudaHeadKinds, LogitsAreThoseOfTheCpu) {
  const std::vector<TokenId> tokens = tokens_from(5, 250);
  const std::vector<float> expected = logits_of(kWide, tokens, DeviceChoice::cpu, DType::f32);
  const double in_f32 = test::nmse(logits_of(kWide, tokens, DeviceChoice::cuda, DType::f32), expected);
  const double in_bf16 = test::nmse(logits_of(kWide, tokens, DeviceChoice::cuda, DType::bf16), expected);
  fmt::print("NMSE {:.2e} in f32, {:.2e} in bf16\n", in_f32, in_bf16);
  EXPECT_LT(in_f32, 1e-7);
  EXPECT_LT(in_bf16, 1e-3);
}

/// One token after the other, by the plans of both kinds, in batches of several sizes: the logits of what was generated are those that a
/// prompt of the same tokens has.
TEST_F(CudaHeadKinds, DecodingGivesWhatPromptsGive) {
  for (const int32_t sequences : {1, 7}) {
    int64_t num_graphs = 0;
    const test::Answers answers = serve(kWide, options_of(DType::bf16), sequences, num_graphs);
    EXPECT_GT(num_graphs, 20);
    double squares = 0.0, count = 0.0;
    for (int32_t i = 0; i < sequences; ++i) {
      const auto& answer = answers.at(std::to_string(i));
      std::vector<TokenId> tokens = tokens_from(3 * i, 5 + 13 * i);
      const size_t prompt = tokens.size();
      tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
      const std::vector<float> logits = logits_of(kWide, tokens, DeviceChoice::cuda, DType::bf16);
      const size_t vocabulary = logits.size() / tokens.size();
      for (size_t k = 0; k < answer.tokens.size(); ++k) {
        const auto row = std::span(logits).subspan((prompt + k - 1) * vocabulary, vocabulary);
        const double largest = *std::ranges::max_element(row);
        double sum = 0.0;
        for (const float logit : row)
          sum += std::exp(logit - largest);
        const double logprob = row[static_cast<size_t>(answer.tokens[k])] - largest - std::log(sum);
        const double difference = answer.logprobs[k].logprob - logprob;
        squares += difference * difference;
        count += 1.0;
      }
    }
    const double root = std::sqrt(squares / count);
    fmt::print("{} sequences: logprobs {:.1e} apart (root mean square)\n", sequences, root);
    EXPECT_LT(root, 0.05);
  }
}

}  // namespace
}  // namespace minfer
