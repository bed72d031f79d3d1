// Steps that check draft tokens replay graphs on CUDA, with the same results as without graphs.
#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/drafted_run.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using test::drafted_run_options;
using test::with_ngrams;

struct DraftGraphRun {
  test::Answers answers;
  int64_t num_graphs = 0;  ///< steps with drafts that replayed graphs
  int64_t num_eager = 0;
};

DraftGraphRun run_with_drafts(const EngineOptions& options, const std::vector<Request>& requests) {
  Engine engine(open_model(source_path("tests/golden/mistral.gguf")), options);
  for (const Request& request : requests)
    engine.submit(request);
  DraftGraphRun run;
  while (engine.has_work())
    run.answers.step(engine);
  for (const StepRecord& record : engine.recorder().after(-1)) {
    if (record.batch.draft_tokens == 0 || record.batch.shape.prefill_tokens > 0) continue;
    (record.batch.graph_batch > 0 ? run.num_graphs : run.num_eager) += 1;
  }
  return run;
}

/// Prompts that repeat themselves, of different lengths, so that sequences bring different numbers of drafts.
std::vector<Request> repeating_requests(int32_t count) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < count; ++i) {
    std::vector<TokenId> prompt;
    for (int32_t k = 0; k < 20 + 3 * i; ++k)
      prompt.push_back(3 + (7 * i + k) % (4 + i % 5));
    requests.push_back(test::greedy_request(std::to_string(i), std::move(prompt), 40));
    requests.back().sampling.logprobs = 0;
  }
  return requests;
}

TEST(CudaDraftGraphs, EqualEagerStepsForManyBatches) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  int64_t num_graphs = 0;
  for (const int32_t batch : {1, 2, 3, 5, 8, 13, 20}) {
    const std::vector<Request> requests = repeating_requests(batch);
    EngineOptions options = with_ngrams(drafted_run_options());
    options.device = DeviceChoice::cuda;
    options.max_num_seqs = 20;
    options.num_blocks = 2000;
    const DraftGraphRun graphs = run_with_drafts(options, requests);
    options.cuda_graphs = false;
    const DraftGraphRun eager = run_with_drafts(options, requests);
    EXPECT_EQ(eager.num_graphs, 0);
    EXPECT_GT(eager.num_eager, 5);
    num_graphs += graphs.num_graphs;
    for (const auto& [id, answer] : eager.answers.all()) {
      EXPECT_EQ(graphs.answers.at(id).tokens, answer.tokens) << "batch of " << batch << ", sequence " << id;
      ASSERT_EQ(graphs.answers.at(id).logprobs.size(), answer.logprobs.size());
      for (size_t i = 0; i < answer.logprobs.size(); ++i)
        EXPECT_NEAR(graphs.answers.at(id).logprobs[i].logprob, answer.logprobs[i].logprob, 1e-4);
    }
  }
  EXPECT_GT(num_graphs, 50);
}

// Passes of a draft model begin with tokens that only the device has. A model that drafts for itself is wrong no more often than
// products over one token and over several differ in their last bits.
TEST(CudaDraftModel, TheSameModelIsNearlyAlwaysRight) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  for (const size_t count : {1, 7}) {
    EngineOptions options = drafted_run_options();
    options.device = DeviceChoice::cuda;
    options.speculation.method = SpeculationMethod::draft;
    options.speculation.draft_model = open_model("");
    options.speculation.num_tokens = 5;
    options.speculation.adaptive = false;
    Engine drafting(open_model(""), options);
    const std::vector<Request> requests = test::varied_requests(drafting, count, 905);
    const test::DraftedRun found = test::run_drafted(drafting, requests);
    EXPECT_GT(found.drafted.draft_tokens, 20);
    EXPECT_GT(found.drafted.accepted_tokens, 0.9 * static_cast<double>(found.drafted.draft_tokens)) << count;
  }
}

}  // namespace
}  // namespace minfer
