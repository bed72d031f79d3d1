#include "engine/evaluator.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/options/sizes.h"

namespace minfer {
namespace {

/// One sequence needs one sequence's KV blocks, and steps no longer than it can be.
EngineOptions evaluation_options(const EngineOptions& given, const ModelConfig& config) {
  EngineOptions options = given;
  options.max_num_seqs = 1;
  options.kv_layout = KvLayout{};
  options.enable_prefix_caching = false;
  options.num_state_copies = 0;
  options.max_num_batched_tokens = std::min(given.max_num_batched_tokens, config.context_length);
  return options;
}

}  // namespace

Evaluator::Evaluator(const ModelSource& source, const EngineOptions& options, const LoadProgress& progress)
    : source_(source),
      vocab_size_(source.config().vocab_size),
      runner_(source, evaluation_options(options, source.config()),
              evaluation_options(options, source.config()).max_num_batched_tokens, progress),
      block_table_(
          static_cast<size_t>(blocks_for(runner_.options().max_model_len, runner_.options().block_size))) {
  std::iota(block_table_.begin(), block_table_.end(), 0);
}

void Evaluator::run(std::span<const TokenId> tokens, int32_t chunk, const OnLogits& on_logits) {
  if (static_cast<int64_t>(tokens.size()) > runner_.options().max_model_len) {
    fail("{} tokens exceed max-model-len {}", tokens.size(), runner_.options().max_model_len);
  }
  for (TokenId token : tokens) {
    if (token < 0 || token >= vocab_size_)
      fail("token {} is not in the vocabulary of {}", token, vocab_size_);
  }
  const int32_t largest = runner_.options().max_num_batched_tokens;
  const int32_t step = chunk > 0 ? std::min(chunk, largest) : largest;
  const auto total = static_cast<int32_t>(tokens.size());
  for (int32_t first = 0; first < total; first += step) {
    run_chunk(tokens, first, std::min(step, total - first), on_logits);
  }
}

void Evaluator::run_chunk(std::span<const TokenId> tokens, int32_t first, int32_t count,
                          const OnLogits& on_logits) {
  std::vector<int32_t> positions(static_cast<size_t>(count));
  std::iota(positions.begin(), positions.end(), first);
  std::vector<int32_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  const std::array<int32_t, 2> query_start{0, count};
  const int32_t context = first + count;

  ForwardBatch batch;
  batch.num_tokens = count;
  batch.num_sequences = 1;
  batch.num_logit_rows = count;
  batch.max_blocks = static_cast<int32_t>(block_table_.size());
  batch.token_ids = tokens.data() + first;
  batch.positions = positions.data();
  batch.slots = positions.data();  // blocks lie in order, so a token's slot is its position
  batch.query_start = query_start.data();
  batch.context_len = &context;
  batch.block_table = block_table_.data();
  constexpr int32_t kOnlySlot = 0;
  if (runner_.options().num_state_slots > 0) batch.state_slots = &kOnlySlot;
  const std::array<BlockTableChange, 1> whole_table{{{0, 0, batch.max_blocks}}};
  if (first == 0) batch.changes = whole_table;
  batch.logit_rows = rows.data();

  const LogitRows logits = runner_.logits(batch);
  if (!runner_.backend().info().copies_weights) source_.check_intact();
  on_logits(first, logits.values);
}

}  // namespace minfer
