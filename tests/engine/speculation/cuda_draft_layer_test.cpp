// Drafts by a model's own layer on CUDA: its logits, and the same drafts by graphs, eager steps, alone and beside other sequences.
#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/draft_layer_run.h"
#include "tests/support/engine/drafted_run.h"

namespace minfer {
namespace {

TEST(CudaDraftLayer, LogitsAgreeWithTransformers) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  for (const char* const name : test::kDraftLayerModels) {
    for (const int32_t piece : {1, 19, 128}) {
      const double error = test::draft_error(name, {.device = DeviceChoice::cuda}, piece);
      std::printf("%s, pieces of %d: NMSE %.2e (limit 1e-07)\n", name, piece, error);
      EXPECT_LE(error, 1e-7) << name;
    }
  }
}

/// With a chance of acceptance for any draft, equal outputs are equal drafts.
TEST(CudaDraftLayer, DraftsAreTheSameByGraphsAndEagerly) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  for (const char* const name : test::kDraftLayerModels) {
    std::vector<Request> requests;
    for (int32_t i = 0; i < 5; ++i) {
      std::vector<TokenId> prompt;
      for (int32_t k = 0; k < 9 + 5 * i; ++k)
        prompt.push_back(3 + (i * 31 + k * k * 7) % 280);
      requests.push_back(test::greedy_request(std::to_string(i), std::move(prompt), 40));
      requests.back().sampling.ignore_eos = true;
    }
    std::vector<test::DraftedRun> runs;
    for (const bool graphs : {true, false}) {
      EngineOptions options = test::drafted_run_options();
      options.device = DeviceChoice::cuda;
      options.cuda_graphs = graphs;
      options.kv_cache_bytes = int64_t{64} << 20;
      options.num_blocks = 0;
      options.speculation.method = SpeculationMethod::mtp;
      options.speculation.num_tokens = 3;
      options.speculation.adaptive = false;
      options.speculation.synthetic_acceptance = 0.7;
      Engine engine(test::draft_layer_model(name), options);
      runs.push_back(test::run_drafted(engine, requests));
    }
    for (const Request& request : requests)
      EXPECT_EQ(runs[0].answers.at(request.id).tokens, runs[1].answers.at(request.id).tokens) << name;
    EXPECT_GT(runs[0].drafted.accepted_tokens, 0);
  }
}

}  // namespace
}  // namespace minfer
