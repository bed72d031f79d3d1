// Engines of models with windows in some layers and full attention in others.
#include <gtest/gtest.h>

#include "engine/options/sizes.h"
#include "models/decoder/memory/kv_cache.h"
#include "tests/support/engine/drafted_run.h"
#include "tests/support/paths.h"

namespace minfer::test {
namespace {

std::unique_ptr<ModelSource> open_golden(const std::string& name) {
  return open_model(source_path("tests/golden/") + name + ".gguf");
}

/// Requests far longer than the windows of 8 tokens, whose prompts begin alike.
std::vector<Request> long_requests(int32_t vocab_size) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) {
    std::vector<TokenId> prompt;
    for (int32_t k = 0; k < 20 + 17 * i; ++k)
      prompt.push_back((k < 40 ? 3 + 5 * k : 7 + 11 * k + i) % vocab_size);
    Request request = greedy_request("request-" + std::to_string(i), std::move(prompt), 140);
    request.sampling.logprobs = 2;
    if (i % 2 == 1) {
      request.sampling.temperature = 0.8f;
      request.sampling.seed = static_cast<uint64_t>(i);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

class EngineWindows : public testing::TestWithParam<std::string> {
 protected:
  DraftedRun run(const EngineOptions& options) {
    Engine engine(open_golden(GetParam()), options);
    return run_drafted(engine, long_requests(engine.config().vocab_size));
  }

  const std::vector<Request> requests_ = long_requests(open_golden(GetParam())->config().vocab_size);
  const Answers expected_ = [this] {
    EngineOptions options = drafted_run_options();
    options.kv_layout = KvLayout{};  // one table for all layers
    options.enable_prefix_caching = false;
    return run(options).answers;
  }();
};

TEST_P(EngineWindows, ManyBlocksOrFewGiveTheSame) {
  for (const bool caching : {true, false}) {
    EngineOptions options = drafted_run_options();
    options.enable_prefix_caching = caching;
    expect_same_answers(requests_, run(options).answers, expected_);
    options.max_num_batched_tokens = 24;
    options.kv_layout =
        KvLayout::of(open_golden(GetParam())->config(), options.max_model_len, options.block_size);
    ASSERT_TRUE(options.kv_layout->has_window_table);
    options.num_blocks = static_cast<int32_t>(kv_block_sizes(options).blocks_for(options.max_model_len));
    const DraftedRun scarce = run(options);
    EXPECT_GT(scarce.num_preempted, 0);
    expect_same_answers(requests_, scarce.answers, expected_);
  }
}

TEST_P(EngineWindows, AskedAgainTheyGiveTheSame) {
  Engine engine(open_golden(GetParam()), drafted_run_options());
  for (int32_t again = 0; again < 3; ++again)
    expect_same_answers(requests_, run_drafted(engine, requests_).answers, expected_);
}

TEST_P(EngineWindows, DraftsGiveTheSame) {
  expect_same_answers(requests_, run(with_ngrams(drafted_run_options())).answers, expected_);
  EngineOptions options = drafted_run_options();
  options.speculation.method = SpeculationMethod::draft;
  options.speculation.num_tokens = 4;
  options.speculation.adaptive = false;
  options.speculation.draft_model = open_golden(GetParam());
  const DraftedRun found = run(options);
  expect_same_answers(requests_, found.answers, expected_);
  EXPECT_GT(found.drafted.draft_tokens, 0);
  EXPECT_EQ(found.drafted.accepted_tokens, found.drafted.draft_tokens) << "it drafts for itself";
}

INSTANTIATE_TEST_SUITE_P(Models, EngineWindows,
                         testing::Values("gemma2", "gemma3", "gemma3n", "gemma4", "gpt-oss", "command-r7b",
                                         "olmo3", "llama4"),
                         [](const auto& model) {
                           std::string label = model.param;
                           std::ranges::replace(label, '-', '_');
                           return label;
                         });

class MostKvSink final : public StepSink {
 public:
  void consume(const StepRecord& record) noexcept override {
    most_used = std::max(most_used, record.batch.kv_blocks_used);
    last_used = record.batch.kv_blocks_used;
    total = record.batch.kv_blocks_total;
  }
  int32_t most_used = 0, last_used = 0, total = 0;
};

TEST(EngineWindowsMemory, RecordsCountTheBlocksOfBothKinds) {
  EngineOptions options = drafted_run_options();
  options.num_blocks = 64;
  options.max_num_seqs = 1;
  options.max_num_batched_tokens = 16;
  const auto most_bytes = [&](const EngineOptions& given) {
    Engine engine(open_golden("gemma3"), given);
    MostKvSink sink;
    engine.recorder().add_sink(sink);
    answer_of(engine, greedy_request("a", long_requests(engine.config().vocab_size)[1].prompt, 160));
    engine.recorder().remove_sink(sink);
    EXPECT_EQ(sink.total, given.num_blocks);
    EXPECT_EQ(engine.options().num_blocks, given.num_blocks);
    const KvCache& kv = engine.runner().kv();
    return sink.most_used * static_cast<int64_t>(kv.bytes()) / kv.num_blocks();
  };
  const int64_t with_two_tables = most_bytes(options);
  options.kv_layout = KvLayout{};
  EXPECT_LT(with_two_tables, most_bytes(options) / 2);
}

}  // namespace
}  // namespace minfer::test
