// The CPU backend's promise: a token's logits do not depend on the rest of the batch, on chunks, cache
// hits, preemption, block size or threads. Compared bit for bit, with controls that must differ.
#include <algorithm>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "engine/evaluator.h"
#include "engine/options/sizes.h"
#include "models/decoder/weights/model_source.h"
#include "tests/support/models/logit_run.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using test::LogitJob;
using test::LogitRun;
using test::LogitTrace;

/// The demo model, mixtures of experts of tests/golden, and the families that differ most: norms behind blocks, caps, windows beside full
/// attention, no positions, parallel blocks, layer norms, no gate, sinks, shared experts, latent attention, chunks, several residual streams,
/// states of sequences.
const std::vector<std::string> kModels{"demo",        "mixtral",
                                       "qwen3moe",    "gemma2",
                                       "gemma3",      "olmo3",
                                       "granite",     "smollm3",
                                       "command-r7b", "starcoder2",
                                       "gpt-oss",     "glm4moe",
                                       "qwen2moe",    "granitemoe-shared",
                                       "deepseek-v2", "deepseek-v3",
                                       "deepseek32",  "glm-dsa",
                                       "llama4",      "gemma3n",
                                       "gemma4",      "qwen3next",
                                       "qwen35",      "lfm2",
                                       "lfm2moe",     "granite-hybrid",
                                       "nemotron-h",  "nemotron-h-experts",
                                       "kimi-linear", "kimi-linear-q-rank"};

std::unique_ptr<ModelSource> open_test_model(const std::string& name) {
  return open_model(name == "demo" ? "" : source_path("tests/golden/") + name + ".gguf");
}

EngineOptions base_options() {
  EngineOptions options;
  options.max_model_len = 256;
  options.max_num_seqs = 16;
  options.num_blocks = 256;
  options.threads = 1;
  return options;
}

std::vector<TokenId> random_prompt(int32_t vocab_size, int32_t length, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> prompt(static_cast<size_t>(length));
  for (TokenId& token : prompt)
    token = static_cast<TokenId>(random() % static_cast<uint32_t>(vocab_size));
  return prompt;
}

class Invariance : public testing::TestWithParam<std::string> {
 protected:
  /// Prompts of 1 to 120 tokens: shorter than a block, whole blocks, one more and one less.
  std::vector<LogitJob> jobs(size_t count) const {
    constexpr int32_t kLengths[] = {100, 16, 1, 33, 15, 17, 64, 120, 5, 48, 31, 80, 2, 65, 32, 63};
    std::vector<LogitJob> list;
    for (size_t i = 0; i < count; ++i)
      list.push_back(
          {random_prompt(source_->config().vocab_size, kLengths[i], static_cast<uint32_t>(i)), 10});
    return list;
  }

  /// The number of tokens that a prefix hit gives if `cached` tokens are cached: whole blocks.
  int32_t expected_hit(const LogitRun& run, int32_t cached) const {
    return cached / run.block_tokens() * run.block_tokens();
  }

  /// Options with which models with states find prefixes as long as the others do: a copy behind each block.
  EngineOptions caching_options() const {
    EngineOptions options = base_options();
    if (source_->config().is_recurrent()) options.num_state_copies = 64;
    options.state_copy_rule = {.interval = 1, .reopened_tokens = 0, .least_tokens = 1};
    return options;
  }

  /// The first layer with keys.
  const KvLayer& first_layer(const KvCache& kv) const {
    int32_t layer = 0;
    while (!source_->config().attends(layer))
      ++layer;
    return kv.layer(layer);
  }

  /// Runs each job in a new engine, the whole prompt in one step, on one thread.
  std::vector<LogitTrace> alone(const std::vector<LogitJob>& list) const {
    std::vector<LogitTrace> traces;
    for (const LogitJob& job : list)
      traces.push_back(LogitRun(*source_, base_options()).run({job}).front());
    return traces;
  }

  void expect_same(const std::vector<LogitTrace>& traces, const std::vector<LogitTrace>& expected,
                   const std::string& what) const {
    ASSERT_EQ(traces.size(), expected.size());
    for (size_t i = 0; i < traces.size(); ++i)
      EXPECT_TRUE(traces[i].same_bits(expected[i])) << what << ", sequence " << i;
  }

  std::unique_ptr<ModelSource> source_ = open_test_model(GetParam());
};

TEST_P(Invariance, AloneOrInABatchOf16OnOneOrTwoThreads) {
  const std::vector<LogitJob> list = jobs(16);
  const std::vector<LogitTrace> expected = alone(list);
  for (const int32_t threads : {1, 2}) {
    EngineOptions options = base_options();
    options.threads = threads;
    LogitRun run(*source_, options);
    expect_same(run.run(list), expected, std::to_string(threads) + " threads");
    const int64_t for_copies = source_->config().is_recurrent() ? 1 : 0;  // pieces of prompts end there
    EXPECT_EQ(run.num_steps(), 10 + for_copies) << "they did not run at once";
  }
}

TEST_P(Invariance, ChunkedBy1And7And16And64) {
  const std::vector<LogitJob> list = jobs(3);
  const std::vector<LogitTrace> expected = alone(list);
  for (const int32_t budget : {1, 7, 16, 64}) {
    EngineOptions options = base_options();
    options.max_num_batched_tokens = budget;
    LogitRun run(*source_, options);
    expect_same(run.run(list), expected, "chunks of " + std::to_string(budget));
    EXPECT_GT(run.num_steps(), 117 / budget);
  }
}

TEST_P(Invariance, ColdOrOnAPrefixHit) {
  constexpr int32_t kBlock = 16;
  const int32_t vocab = source_->config().vocab_size;
  for (const int32_t length : {40, 48}) {  // the last block partly filled, or full
    const std::vector<TokenId> first = random_prompt(vocab, length, 1);
    for (const int32_t shared : {0, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock, length}) {
      std::vector<TokenId> second = random_prompt(vocab, length, 2);
      std::copy_n(first.begin(), shared, second.begin());
      if (shared < length && second[static_cast<size_t>(shared)] == first[static_cast<size_t>(shared)])
        second[static_cast<size_t>(shared)] ^= 1;
      LogitRun run(*source_, caching_options());
      run.run({{first, 5}});
      const LogitTrace warm = run.run({{second, 5}}).front();
      const int32_t usable = std::min(shared, length - 1);  // the last token is always computed
      EXPECT_EQ(warm.num_cached_tokens, expected_hit(run, usable)) << shared << " of " << length;
      expect_same({warm}, alone({{second, 5}}), "prefix of " + std::to_string(shared));
    }
  }
}

TEST_P(Invariance, OnAPrefixHitInGeneratedTokens) {
  LogitRun run(*source_, caching_options());
  const LogitJob job{random_prompt(source_->config().vocab_size, 20, 3), 40};
  LogitJob next = job;
  const LogitTrace before = run.run({job}).front();
  next.prompt.insert(next.prompt.end(), before.tokens.begin(), before.tokens.end());
  const LogitTrace warm = run.run({next}).front();
  EXPECT_EQ(warm.num_cached_tokens, expected_hit(run, 59));
  expect_same({warm}, alone({next}), "continued conversation");
}

TEST_P(Invariance, PreemptedOrNot) {
  std::vector<LogitJob> list = jobs(8);
  for (LogitJob& job : list) {
    job.prompt.resize(std::min<size_t>(job.prompt.size(), 16));
    job.num_output = 60;
  }
  const std::vector<LogitTrace> expected = alone(list);
  for (const bool prefix_caching : {true, false}) {
    EngineOptions options = base_options();
    options.max_model_len = 80;
    options.block_size = 4;
    options.max_num_batched_tokens = 24;
    KvLayout layout = KvLayout::of(source_->config(), options.max_model_len, options.block_size);
    if (!layout.has_window_table) layout.window = 0;  // else no layer needs more than its prompt did
    options.kv_layout = layout;
    const auto blocks_of_longest =
        static_cast<int32_t>(kv_block_sizes(options).blocks_for(options.max_model_len));
    options.num_blocks = layout.has_window_table ? blocks_of_longest : 30;
    options.enable_prefix_caching = prefix_caching;
    const std::vector<LogitTrace> traces = LogitRun(*source_, options).run(list);
    int32_t num_preemptions = 0;
    for (const LogitTrace& trace : traces)
      num_preemptions += trace.num_preemptions;
    EXPECT_GE(num_preemptions, 2);
    expect_same(traces, expected, "preempted");
  }
}

TEST_P(Invariance, BlockSizes) {
  const std::vector<LogitJob> list = jobs(4);
  const std::vector<LogitTrace> expected = alone(list);
  for (const int32_t block_size : {1, 5, 8, 64, 256}) {
    EngineOptions options = base_options();
    options.block_size = block_size;
    options.num_blocks = 2048 / block_size;
    expect_same(LogitRun(*source_, options).run(list), expected, "blocks of " + std::to_string(block_size));
  }
}

TEST_P(Invariance, NarrowKvTypesToo) {
  const std::vector<LogitJob> list = jobs(6);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    EngineOptions options = base_options();
    options.kv_cache_dtype = dtype;
    const std::vector<LogitTrace> expected = LogitRun(*source_, options).run(list);
    options.max_num_batched_tokens = 11;
    expect_same(LogitRun(*source_, options).run(list), expected, std::string(name(dtype)));
    EXPECT_FALSE(expected.front().same_bits(alone({list.front()}).front())) << "rounding changes nothing?";
  }
}

/// The logits of every position, not only of those from which tokens are drawn.
TEST_P(Invariance, AllPositionsByChunkAndThreads) {
  const std::vector<TokenId> tokens = random_prompt(source_->config().vocab_size, 70, 4);
  std::vector<float> expected;
  for (const int32_t threads : {1, 2}) {
    EngineOptions options = base_options();
    options.threads = threads;
    Evaluator evaluator(*source_, options);
    for (const int32_t chunk : {0, 1, 7, 16, 64}) {
      std::vector<float> logits;
      evaluator.run(tokens, chunk, [&](int32_t, std::span<const float> rows) {
        logits.insert(logits.end(), rows.begin(), rows.end());
      });
      if (expected.empty()) expected = logits;
      ASSERT_EQ(logits.size(), expected.size());
      EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0)
          << "chunk " << chunk << ", " << threads << " threads";
    }
  }
}

/// Far beyond every window, beside others, in chunks, and found in the cache again.
TEST_P(Invariance, WithATableForEachKindOfLayersOrOneForAll) {
  std::vector<LogitJob> list = jobs(6);
  for (LogitJob& job : list)
    job.num_output = 90;
  EngineOptions options = base_options();
  options.kv_layout = KvLayout{};
  options.enable_prefix_caching = false;
  const std::vector<LogitTrace> expected = LogitRun(*source_, options).run(list);
  for (const int32_t block_size : {3, 16}) {
    options = base_options();
    options.max_num_batched_tokens = 40;
    options.block_size = block_size;
    options.num_blocks = 1024;
    LogitRun run(*source_, options);
    expect_same(run.run(list), expected, "blocks of " + std::to_string(block_size));
    const std::vector<LogitTrace> again = run.run(list);
    EXPECT_GT(again.front().num_cached_tokens, 0);
    expect_same(again, expected, "on a hit, blocks of " + std::to_string(block_size));
  }
}

// Controls: the results that the tests above compare must change if a cache is wrong.

TEST_P(Invariance, ControlASpoiltKvElementIsNoticed) {
  const std::vector<LogitJob> list = jobs(1);
  const std::vector<LogitTrace> expected = alone(list);
  EngineOptions options = base_options();
  options.num_state_copies = 0;   // no step of the prompt ends for a copy
  constexpr int64_t kSpoilt = 6;  // not the first of a chunk, in models that have chunks
  for (const bool of_values : {false, true}) {
    LogitRun run(*source_, options);
    int64_t step = 0;
    const LogitTrace spoilt = run.run(list,
                                      [&](HostBatch& batch, const KvCache& kv) {
                                        if (step++ != kSpoilt) return;
                                        const KvLayer& layer = first_layer(kv);
                                        const int32_t before = batch.context_len[0] - 2;  // in every window
                                        const int64_t row =
                                            int64_t{batch.block_table[before / layer.block_size]} *
                                                layer.kv_heads * layer.block_size +
                                            before % layer.block_size;
                                        auto* elements = static_cast<float*>(of_values ? layer.v : layer.k);
                                        float& element = elements[row * layer.head_size];
                                        element = element * 1.01f + 0.01f;
                                      })
                                  .front();
    EXPECT_FALSE(spoilt.same_bits(expected.front()));
    // Logits differ only from then on.
    const size_t unspoilt = kSpoilt * static_cast<size_t>(source_->config().vocab_size);
    EXPECT_TRUE(std::equal(spoilt.logits.begin(), spoilt.logits.begin() + static_cast<ptrdiff_t>(unspoilt),
                           expected.front().logits.begin()));
  }
}

TEST_P(Invariance, ControlAWrongBlockIsNoticed) {
  const std::vector<LogitJob> list = jobs(1);
  const LogitTrace spoilt = LogitRun(*source_, base_options())
                                .run(list,
                                     [this](HostBatch& batch, const KvCache& kv) {
                                       const int32_t last = (batch.context_len[0] - 1) /
                                                            first_layer(kv).block_size;  // in every window
                                       std::swap(batch.block_table[last - 1], batch.block_table[last]);
                                     })
                                .front();
  EXPECT_FALSE(spoilt.same_bits(alone(list).front()));
}

INSTANTIATE_TEST_SUITE_P(Models, Invariance, testing::ValuesIn(kModels), [](const auto& model) {
  std::string label = model.param;
  std::ranges::replace(label, '-', '_');
  return label;
});

}  // namespace
}  // namespace minfer
