#include "engine/speculation/draft_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/options/sizes.h"
#include "engine/ranks/rank_backends.h"
#include "engine/request/live_request.h"

namespace minfer {
namespace {

/// Tokens of a sequence in an ordinary pass: its newest, and the last draft, if all were accepted.
constexpr int32_t kOrdinaryTokens = 2;

ModelDrafter::Cache& cache_of(LiveRequest& request) {
  return static_cast<ModelDrafter&>(*request.drafter).cache;
}

EngineOptions draft_options(const EngineOptions& options, const ModelConfig& draft) {
  EngineOptions own = options;
  own.speculation = {};
  own.quantization = {};
  own.num_state_copies.reset();
  own.max_model_len = options.max_model_len > 0 ? std::min(options.max_model_len, draft.context_length)
                                                : draft.context_length;
  return own;
}

}  // namespace

DraftModel::DraftModel(const EngineOptions& options, const ModelConfig& target, const LoadProgress& progress)
    : source_(options.speculation.draft_model), options_(draft_options(options, source_->config())) {
  const ModelConfig& config = source_->config();
  if (config.vocab_size != target.vocab_size) {
    fail("speculative-model: {} has a vocabulary of {}, expected {}, the model's", source_->name(),
         config.vocab_size, target.vocab_size);
  }
  if (config.is_recurrent()) {
    fail(
        "speculative-model: {} has layers with states of sequences: not supported, since rejected drafts "
        "would have changed them",
        source_->name());
  }
  if (options.tensor_parallel_size > 1 || options.processes)
    fail(
        "speculative-model: a draft model works with one rank only, found several; --speculative ngram works "
        "with any number");
  std::unique_ptr<Backend> backend = RankBackends(options_, *source_, nullptr).make(0);
  // Its keys are in the model's blocks, in the table that keeps everything.
  const KvLayout layout = options.kv_layout.value_or(usual_kv_layout(options, target));
  options_.kv_layout = KvLayout{.parts = layout.parts};
  block_tokens_ = kv_block_sizes(options_).block_size;
  choose_for_backend(options_, config, backend->info());
  model_ =
      std::make_unique<RankModel>(*source_, options_, options_.max_num_seqs, progress, std::move(backend));
  if (model_->backend().info().copies_weights) source_->release_data();
}

EngineOptions DraftModel::reserved(EngineOptions options) const {
  options.draft_block_bytes = kv_block_bytes(source_->config(), options_, options_.kv_cache_dtype.value());
  options.draft_workspace_bytes = model_->workspace_bytes();
  return options;
}

void DraftModel::begin(const EngineOptions& options) {
  options_.num_blocks = options.num_blocks;
  options_.max_model_len = std::min(options_.max_model_len, options.max_model_len);
  options_.max_num_batched_tokens = options.max_num_batched_tokens;
  model_->make_decoder(options_);
  builder_.emplace(options_);
  passes_.emplace(
      *builder_, [this](const StepArgs& step) { model_->launch(step); },
      [this](std::span<SampledToken> out) { model_->backend().finish_step(out); });
  written_.assign(static_cast<size_t>(options.num_blocks), 0);
}

std::unique_ptr<Drafter> DraftModel::make_drafter(const Sequence& /*sequence*/) {
  return std::make_unique<ModelDrafter>(all_);
}

int32_t DraftModel::num_behind(const Drafter& drafter) const {
  const int32_t num_behind = static_cast<const ModelDrafter&>(drafter).num_behind();
  return num_behind <= kOrdinaryTokens ? 0 : num_behind;
}

bool DraftModel::is_known() const {
  return pass_ns_ > 0.0 && token_ns_ > 0.0 && all_.count() >= kKnownDrafts;
}

void DraftModel::propose(std::span<const DraftOrder> orders) {
  jobs_.clear();
  for (const DraftOrder& order : orders) {
    const int32_t num_drafts = std::min(order.num_drafts, options_.max_model_len - order.request->size());
    if (num_drafts <= 0) continue;
    find_written(*order.request, cache_of(*order.request));
    jobs_.push_back({order.request, num_drafts});
  }
  // Up to each sequence's newest token and its first draft; then the others.
  for (bool is_behind = !jobs_.empty(); is_behind;) {
    const int64_t begin_ns = now_ns();
    int32_t budget = options_.max_num_batched_tokens;
    is_behind = add_catching_up(budget);
    const int32_t num_tokens = passes_->batch().num_tokens;
    const bool is_long = !is_ordinary();
    passes_->launch();
    if (is_long || is_behind) passes_->finish();
    if (is_long) follow(token_ns_, static_cast<double>(now_ns() - begin_ns) / num_tokens);
  }
  const double fastest_ns = passes_->finish_all(jobs_, [this](DraftJob& job) { add(job, 1, true); });
  if (std::isfinite(fastest_ns)) follow(pass_ns_, fastest_ns);
  for (const DraftJob& job : jobs_)
    name_blocks(*job.request, cache_of(*job.request));
  source_->check_intact();
}

/// Finds which of a sequence's tokens are written in its blocks: as it was left, or, in blocks that it did not have then, by their names.
void DraftModel::find_written(LiveRequest& request, ModelDrafter::Cache& cache) {
  if (cache.num_preemptions == request.num_preemptions) {
    cache.num_computed = std::min({cache.num_computed, cache.num_sure, request.size() - 1});
    cache.num_sure = request.size();
    return name_blocks(request, cache);
  }
  cache.num_preemptions = request.num_preemptions;
  cache.num_named = 0;
  const int32_t num_full = (request.size() - 1) / block_tokens_;
  while (cache.num_named < num_full &&
         written_[static_cast<size_t>(request.blocks[static_cast<size_t>(cache.num_named)])] ==
             block_name(request, cache, cache.num_named))
    ++cache.num_named;
  cache.num_computed = cache.num_named * block_tokens_;
  cache.num_sure = request.size();
}

/// Names the blocks that are full of the sequence's own tokens.
void DraftModel::name_blocks(LiveRequest& request, ModelDrafter::Cache& cache) {
  const int32_t num_full = std::min(cache.num_computed, request.size() - 1) / block_tokens_;
  for (; cache.num_named < num_full; ++cache.num_named) {
    const BlockId block = request.blocks[static_cast<size_t>(cache.num_named)];
    written_[static_cast<size_t>(block)] = block_name(request, cache, cache.num_named);
  }
}

uint64_t DraftModel::block_name(const LiveRequest& request, ModelDrafter::Cache& cache, int32_t index) const {
  const auto block_size = static_cast<size_t>(block_tokens_);
  while (std::ssize(cache.names) <= index) {
    const uint64_t before = cache.names.empty() ? 1 : cache.names.back();
    const auto tokens = std::span(request.tokens).subspan(cache.names.size() * block_size, block_size);
    cache.names.push_back(xxh3_block_hash(before, tokens));
  }
  return cache.names[static_cast<size_t>(index)];
}

/// Adds the tokens that jobs lack up to their newest token, within the budget:
/// first the jobs that lack little, as in every batch. True if some are left.
bool DraftModel::add_catching_up(int32_t& budget) {
  bool is_behind = false;
  for (const bool lacks_little : {true, false}) {
    for (DraftJob& job : jobs_) {
      const int32_t num_lacking = job.request->size() - cache_of(*job.request).num_computed;
      if (num_lacking <= 0 || (num_lacking <= kOrdinaryTokens) != lacks_little) continue;
      const int32_t num_tokens = std::min(num_lacking, budget);
      if (num_tokens > 0) add(job, num_tokens, num_tokens == num_lacking);
      is_behind |= num_tokens < num_lacking;
      budget -= num_tokens;
    }
    if (lacks_little) passes_->end_decoding();
  }
  return is_behind;
}

/// Adds the next tokens of a sequence to the pass: its own tokens, or the coming draft.
void DraftModel::add(DraftJob& job, int32_t num_tokens, bool draws) {
  LiveRequest& request = *job.request;
  ModelDrafter::Cache& cache = cache_of(request);
  // A block that is being rewritten loses its name until it is full.
  for (int32_t i = cache.num_computed / block_tokens_;
       i <= (cache.num_computed + num_tokens - 1) / block_tokens_; ++i)
    written_[static_cast<size_t>(request.blocks[static_cast<size_t>(i)])] = 0;
  // With few tokens, each has a row behind it: such a pass can be a graph.
  const int32_t num_rows = !draws ? 0 : num_tokens <= kOrdinaryTokens ? num_tokens : 1;
  passes_->add(job, cache.num_computed, num_tokens, num_rows);
  cache.num_computed += num_tokens;
}

/// A token for each sequence, or little more.
bool DraftModel::is_ordinary() const {
  return passes_->batch().num_decode_sequences == std::ssize(passes_->batch().sequences);
}

}  // namespace minfer
