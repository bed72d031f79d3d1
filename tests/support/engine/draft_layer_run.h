#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/model_runner.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paths.h"

namespace minfer::test {

/// Models of tests/golden with a layer for drafts: a hybrid, one with experts, one with latent attention; and EAGLE-3 heads of two models.
inline constexpr std::array kDraftLayerModels{"qwen35-mtp", "glm4moe-mtp", "deepseek-v3-mtp",
                                              "eagle3-mistral", "eagle3-gemma3"};
constexpr std::string_view kEagleName = "eagle3-";

/// The name of the model, which of a head is behind kEagleName.
inline std::string target_of(const std::string& name) {
  return name.starts_with(kEagleName) ? name.substr(kEagleName.size()) : name;
}

/// NAME.ENDING of tests/golden, of a head in its own folder.
inline std::string golden_file(const std::string& name, const char* ending) {
  return source_path(
      fmt::format("tests/golden/{}{}.{}", name.starts_with(kEagleName) ? "heads/" : "", name, ending));
}

/// The model, with its layer for drafts if `drafts`.
inline std::unique_ptr<ModelSource> draft_layer_model(const std::string& name, bool drafts = true) {
  const std::string model = golden_file(target_of(name), "gguf");
  return drafts && name.starts_with(kEagleName) ? open_model_with_head(model, golden_file(name, "gguf"))
                                                : open_model(model, drafts);
}

/// One sequence through a model with a layer for drafts, and through that layer.
class DraftLayerRun {
 public:
  DraftLayerRun(const std::string& name, EngineOptions options) : source_(draft_layer_model(name)) {
    options.max_num_seqs = 1;
    options.kv_layout = KvLayout{};
    options.enable_prefix_caching = false;
    options.num_state_copies = 0;
    options.max_model_len = 128;
    options.num_blocks = 8;
    runner_ = std::make_unique<ModelRunner>(*source_, options, 128);
  }

  /// Computes tokens [first, first + count); the logits [count, vocab]. `drafts`: of the layer for drafts, one token.
  std::vector<float> run(const std::vector<TokenId>& tokens, int32_t first, int32_t count, bool drafts) {
    std::vector<int32_t> positions(static_cast<size_t>(count)), rows(positions.size()), table(8);
    std::iota(positions.begin(), positions.end(), first);
    std::iota(rows.begin(), rows.end(), 0);
    std::iota(table.begin(), table.end(), 0);
    const std::array<int32_t, 2> query_start{0, count};
    const int32_t context = first + count, slot = 0, decodes = drafts ? 1 : 0;
    const std::array<BlockTableChange, 1> whole_table{{{0, 0, 8}}};
    ForwardBatch batch{.num_tokens = count,
                       .num_sequences = 1,
                       .num_decode_sequences = decodes,
                       .num_decode_tokens = decodes,
                       .num_logit_rows = count,
                       .max_blocks = 8};
    batch.token_ids = tokens.data() + first;
    batch.positions = batch.slots = positions.data();
    batch.query_start = query_start.data();
    batch.context_len = &context;
    batch.block_table = table.data();
    batch.state_slots = &slot;
    batch.changes = whole_table;
    batch.logit_rows = rows.data();
    const LogitRows logits = runner_->logits(batch, drafts);
    return {logits.values.begin(), logits.values.end()};
  }

 private:
  std::unique_ptr<ModelSource> source_;
  std::unique_ptr<ModelRunner> runner_;
};

/// NAME.drafts of tests/golden: the logits of drafts at all positions of the model's text, and of a second draft at the last one.
inline std::vector<float> read_drafts(const std::string& name) {
  std::ifstream file(golden_file(name, "drafts"), std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<float> logits(bytes.size() / sizeof(float));
  std::memcpy(logits.data(), bytes.data(), logits.size() * sizeof(float));
  return logits;
}

/// Drafts at every position in turn, each followed by a second one that the model's next steps have to replace, with the model's tokens
/// in pieces between; then the reference's second draft. NMSE of all of them.
inline double draft_error(const std::string& name, const EngineOptions& options, int32_t piece) {
  const GoldenLogits golden = read_logits(golden_file(target_of(name), "logits"));
  const std::vector<float> expected = read_drafts(name);
  const auto count = static_cast<int32_t>(golden.tokens.size());
  const size_t vocab = golden.logits.size() / golden.tokens.size();
  DraftLayerRun run(name, options);
  std::vector<float> found, wanted;
  for (int32_t first = 0; first < count - 2; first += piece) {
    const int32_t computed = std::min(first + piece, count - 2);
    run.run(golden.tokens, first, computed - first, false);
    const std::vector<float> draft = run.run(golden.tokens, computed, 1, true);
    const std::vector<float> second = run.run(golden.tokens, computed + 1, 1, true);
    const auto add = [&](const std::vector<float>& logits, int32_t row) {
      for (size_t i = 0; i < vocab; ++i) {
        const float reference = expected[vocab * static_cast<size_t>(row) + i];
        if (std::isinf(reference) && logits[i] == reference) continue;  // a token that is never drafted
        found.push_back(logits[i]);
        wanted.push_back(reference);
      }
    };
    add(draft, computed);
    if (computed == count - 2) add(second, count);
  }
  return nmse(found, wanted);
}

}  // namespace minfer::test
