// Trained models on the CPU: logits, perplexity, continuations and ids as Hugging Face transformers and the package tokenizers give them,
// and the same bits whichever pieces a prompt is computed in. Skipped if the files are missing.
#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "tests/support/engine/trained_model.h"
#include "tests/support/models/logit_run.h"
#include "tests/support/sanitizers.h"

namespace minfer {
namespace {

EngineOptions text_options(int32_t num_batched_tokens) {
  EngineOptions options;
  options.device = DeviceChoice::cpu;
  options.max_model_len = 2048;
  options.max_num_seqs = 8;
  options.kv_cache_bytes = int64_t{256} << 20;
  options.max_num_batched_tokens = num_batched_tokens;
  return options;
}

/// Rows of logits behind each prefix of `tokens`, from an engine's scheduler.
std::vector<test::LogitTrace> rows_behind(test::LogitRun& run, std::span<const TokenId> tokens,
                                          std::span<const int32_t> positions) {
  std::vector<test::LogitJob> jobs;
  for (const int32_t position : positions)
    jobs.push_back({{tokens.begin(), tokens.begin() + position + 1}, 1});
  return run.run(jobs);
}

class TrainedModels : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto path = test::trained_model(GetParam());
    if (!path) GTEST_SKIP() << test::kNoTrainedModel;
    if (test::kSanitized) GTEST_SKIP() << "takes minutes with a sanitizer: the build without has it";
    path_ = path->string();
  }

  /// Expects an NMSE within the cost of float32, and every first choice that is not a near tie.
  test::TextRun expect_text(const std::string& text) const {
    const nlohmann::json reference = test::trained_reference(GetParam()).at("texts").at(text);
    test::TextRun run = test::run_text(path_, GetParam(), text, text_options(256));
    EXPECT_LT(run.nmse, 1e-11);
    EXPECT_LT(run.largest_of_log_sums, 2e-4);
    EXPECT_EQ(run.num_first_right, std::ssize(run.rows));
    EXPECT_EQ(run.first_choices, reference.at("all_first").get<std::string>());
    EXPECT_NEAR(run.mean_loss, reference.at("mean_loss").get<double>(), 1e-5);
    return run;
  }

  /// Expects the same bits in one step, in steps of 100 tokens beside other prompts, and behind prefixes from the cache.
  void expect_same_bits_in_pieces(const test::TextRun& run) const {
    std::vector<int32_t> positions;  // some short ones, one behind the window, the last
    for (const auto& [position, row] : run.rows)
      positions.push_back(position);
    positions = {positions[1], positions[positions.size() / 2], positions.back()};
    const std::unique_ptr<ModelSource> source = open_model(path_);
    test::LogitRun whole(*source, text_options(2048));
    test::LogitRun pieces(*source, text_options(100));
    expect_rows(run, positions, rows_behind(whole, run.tokens, std::span(positions).last(1)), "in one step");
    expect_rows(run, positions, rows_behind(pieces, run.tokens, positions), "in pieces");
    const std::vector<test::LogitTrace> again = rows_behind(pieces, run.tokens, positions);
    EXPECT_GT(again.back().num_cached_tokens, positions[1]);
    expect_rows(run, positions, again, "behind cached prefixes");
  }

  static void expect_rows(const test::TextRun& run, std::span<const int32_t> positions,
                          const std::vector<test::LogitTrace>& traces, const char* how) {
    positions = positions.last(traces.size());
    for (size_t i = 0; i < traces.size(); ++i) {
      const std::vector<float>& expected = run.rows.at(positions[i]);
      ASSERT_EQ(traces[i].logits.size(), expected.size());
      EXPECT_EQ(std::memcmp(traces[i].logits.data(), expected.data(), expected.size() * sizeof(float)), 0)
          << how << ", at " << positions[i];
    }
  }

  std::string path_;
};

TEST_P(TrainedModels, StoryAgreesWithTransformersWholeAndInPieces) {
  expect_same_bits_in_pieces(expect_text("story"));
}

TEST_P(TrainedModels, CodeAgreesWithTransformers) {
  expect_text("code");
}

TEST_P(TrainedModels, LanguagesAgreeWithTransformers) {
  expect_text("languages");
}

TEST_P(TrainedModels, ContinuationsAreThoseOfTransformers) {
  const nlohmann::json reference = test::trained_reference(GetParam());
  EXPECT_EQ(test::num_equal_continuations(path_, reference, text_options(64)), reference.at("greedy").size());
}

TEST_P(TrainedModels, TextsHaveTheIdsOfTokenizers) {
  const nlohmann::json reference = test::trained_reference(GetParam()).at("tokenisation");
  const auto digests = reference.at("digests").get<std::string>();
  const std::vector<std::string> texts =
      test::texts_of_fragments(reference.at("seed"), reference.at("num_texts"));
  ASSERT_EQ(digests.size(), 4 * texts.size());
  const std::unique_ptr<Tokenizer> tokenizer = open_model(path_)->make_tokenizer();
  size_t num_wrong = 0;
  std::string shortest;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<TokenId> ids =
        tokenizer->encode(texts[i], {.add_special = false, .parse_special = false});
    if (test::digest(ids).substr(12) == digests.substr(4 * i, 4)) continue;
    if (num_wrong++ == 0 || texts[i].size() < shortest.size()) shortest = texts[i];
  }
  EXPECT_EQ(num_wrong, 0u) << "of " << texts.size() << ", the shortest: " << nlohmann::json(shortest).dump();
}

INSTANTIATE_TEST_SUITE_P(Files, TrainedModels, testing::Values(test::kSmolLm2, test::kGemma3),
                         [](const auto& test_case) {
                           std::string label = test_case.param;
                           std::ranges::replace(label, '-', '_');
                           return label;
                         });

}  // namespace
}  // namespace minfer
