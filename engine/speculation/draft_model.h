#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "engine/ranks/rank_model.h"
#include "engine/speculation/draft_passes.h"

namespace minfer {

/// The quality of a draft model's drafts for one sequence, and the tokens of the sequence that are in its KV cache.
class ModelDrafter : public MeasuredDrafter {
 public:
  using MeasuredDrafter::MeasuredDrafter;

  void checked(int32_t num_drafts, int32_t num_accepted) override {
    MeasuredDrafter::checked(num_drafts, num_accepted);
    cache.num_sure += num_accepted;
  }
  /// Tokens that the draft model must compute before its first draft.
  int32_t num_behind() const { return std::max(0, num_tokens() - cache.num_computed); }

  /// The draft model's own record of the sequence's tokens that it has written.
  struct Cache {
    int32_t num_computed = 0;      ///< leading tokens, drafts among them
    int32_t num_sure = 0;          ///< leading tokens known to be the sequence's, not just drafts
    int32_t num_preemptions = -1;  ///< of the sequence when these were found; it has other blocks since
    int32_t num_named = 0;         ///< leading blocks whose content the draft model has a name for
    std::vector<uint64_t> names;   ///< of each full block of the sequence, with all before it
  };
  Cache cache;
};

/// Drafts by a smaller model of the same vocabulary (speculative decoding: Leviathan et al. 2023, Chen
/// et al. 2023). It draws with the target model's parameters, seed and positions, and so with the same
/// random numbers. Two models that are nearly sure of the same tokens then draw the same ones.
///
/// Its KV cache has the target's blocks, under the same ids: the block of a token's keys and values there is also its block
/// here. It tracks for itself which of them are written, by a name for each full block's content. So sequences that share
/// blocks share them here too. The name also shows that a block was given to another sequence and holds something else.
///
/// Engine thread, which waits for its results. They decide nothing about the output.
class DraftModel : public DraftSource {
 public:
  /// Loads the weights of options.speculation.draft_model. Throws Error
  /// if its vocabulary is not `target`'s, or if there are several ranks.
  DraftModel(const EngineOptions& options, const ModelConfig& target, const LoadProgress& progress);
  /// `options` plus the draft model's needs of the KV cache's memory.
  EngineOptions reserved(EngineOptions options) const;
  /// Makes the rest. `options` are the target's, with all sizes chosen.
  void begin(const EngineOptions& options);

  std::unique_ptr<Drafter> make_drafter(const Sequence& sequence) override;
  void propose(std::span<const DraftOrder> orders) override;
  double pass_ns() const override { return pass_ns_; }
  bool is_known() const override;
  int32_t num_behind(const Drafter& drafter) const override;
  double token_ns() const override { return token_ns_; }

 private:
  void find_written(LiveRequest& request, ModelDrafter::Cache& cache);
  void name_blocks(LiveRequest& request, ModelDrafter::Cache& cache);
  uint64_t block_name(const LiveRequest& request, ModelDrafter::Cache& cache, int32_t index) const;
  bool add_catching_up(int32_t& budget);
  void add(DraftJob& job, int32_t num_tokens, bool draws);
  bool is_ordinary() const;

  std::shared_ptr<ModelSource> source_;
  EngineOptions options_;
  int32_t block_tokens_ = 0;  ///< of a block of the model's
  std::unique_ptr<RankModel> model_;
  std::optional<BatchBuilder> builder_;
  std::vector<uint64_t> written_;  ///< by block: the name of its content here; 0: no whole content
  HitRate all_;
  double pass_ns_ = 0.0;   ///< recent time of a token for each sequence
  double token_ns_ = 0.0;  ///< recent time of a token that it catches up

  std::vector<DraftJob> jobs_;
  std::optional<DraftPasses> passes_;
};

}  // namespace minfer
