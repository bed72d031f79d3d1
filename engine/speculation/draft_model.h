#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "engine/ranks/rank_model.h"
#include "engine/request/drafter.h"
#include "engine/scheduling/batch_builder.h"
#include "engine/speculation/draft_source.h"

namespace minfer {

/// How good a draft model's drafts for one sequence are, and what of the sequence is in its KV cache. The quality is known
/// only where drafts are checked. If they have not been checked for long, they count as good again, ever more seldom.
class ModelDrafter : public Drafter {
 public:
  /// `all`: the hit rate of all sequences, which outlives this one.
  explicit ModelDrafter(HitRate& all) : all_(all) {}

  void follow(std::span<const TokenId> tokens) override { num_tokens_ = static_cast<int32_t>(tokens.size()); }
  float hit_rate(int32_t /*index*/) const override {
    const float rate = own_.value(all_.value(kFirstGuess));
    return is_due_again() ? std::max(rate, kFirstGuess) : rate;
  }
  void checked(int32_t num_drafts, int32_t num_accepted) override {
    for (int32_t i = 0; i < std::min(num_drafts, num_accepted + 1); ++i) {
      own_.add(i < num_accepted);
      all_.add(i < num_accepted);
    }
    cache.num_sure += num_accepted;
    retry_after_ = is_due_again() ? std::min(2 * retry_after_, kSeldom) : kSoon;
    num_tokens_at_check_ = num_tokens_;
  }
  /// Tokens that the draft model must compute before its first draft.
  int32_t num_behind() const { return std::max(0, num_tokens_ - cache.num_computed); }

  /// The draft model's own record of the sequence's tokens that it has written.
  struct Cache {
    int32_t num_computed = 0;      ///< leading tokens, drafts among them
    int32_t num_sure = 0;          ///< leading tokens known to be the sequence's, not just drafts
    int32_t num_preemptions = -1;  ///< of the sequence when these were found; it has other blocks since
    int32_t num_named = 0;         ///< leading blocks whose content the draft model has a name for
    std::vector<uint64_t> names;   ///< of each full block of the sequence, with all before it
  };
  Cache cache;

 private:
  static constexpr float kFirstGuess = 0.7f;
  static constexpr int32_t kSoon = 64, kSeldom = 4096;  ///< tokens without a check

  bool is_due_again() const { return num_tokens_ - num_tokens_at_check_ > retry_after_; }

  HitRate own_;
  HitRate& all_;
  int32_t num_tokens_ = 0;
  int32_t num_tokens_at_check_ = 0;
  int32_t retry_after_ = kSoon;
};

/// Drafts by a smaller model of the same vocabulary (speculative decoding: Leviathan et al. 2023, Chen
/// et al. 2023). It draws with the target model's parameters, seed and positions, and so with the same
/// random numbers. Two models that are nearly sure of the same tokens then draw the same ones.
///
/// Its KV cache has the target's blocks, under the same ids: the block of a token's keys and values there is also its block
/// here. It tracks for itself which of them are written, by a name for each full block's content. So sequences that share
/// blocks share them here too. The name also shows that a block was given to another sequence and holds something else.
///
/// Each of several drafts is a pass, launched while the pass before it runs: the device has the token that it begins with.
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
  /// A sequence that is being given drafts.
  struct Job {
    LiveRequest* request;
    int32_t num_drafts;      ///< the most drafts that it gets
    int32_t num_coming = 0;  ///< drafts that it has got, and those being drawn
  };
  /// The jobs of a pass under way, by drawn row; null: the row is not wanted.
  using OpenPass = std::vector<Job*>;

  void find_written(LiveRequest& request, ModelDrafter::Cache& cache);
  void name_blocks(LiveRequest& request, ModelDrafter::Cache& cache);
  uint64_t block_name(const LiveRequest& request, ModelDrafter::Cache& cache, int32_t index) const;
  bool add_catching_up(int32_t& budget);
  void add(Job& job, int32_t num_tokens, bool draws);
  bool is_ordinary() const;
  void launch_pass();
  void finish_pass();

  std::shared_ptr<ModelSource> source_;
  EngineOptions options_;
  int32_t block_tokens_ = 0;  ///< of a block of the model's
  std::unique_ptr<RankModel> model_;
  std::optional<BatchBuilder> builder_;
  std::vector<uint64_t> written_;  ///< by block: the name of its content here; 0: no whole content
  HitRate all_;
  double pass_ns_ = 0.0;   ///< recent time of a token for each sequence
  double token_ns_ = 0.0;  ///< recent time of a token that it catches up

  std::vector<Job> jobs_;
  std::array<OpenPass, 2> passes_;
  size_t num_launched_ = 0, num_finished_ = 0;

  // The pass being made.
  ScheduledBatch batch_;
  std::vector<SamplingRow> rows_;
  std::vector<Job*> drawing_;
  std::vector<SampledToken> sampled_;
};

}  // namespace minfer
