#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/options/engine_options.h"
#include "engine/ranks/rank_model.h"
#include "engine/ranks/ranks.h"

namespace minfer {

/// Logits in host memory: [rows, vocab_size].
struct LogitRows {
  std::span<const float> values;
  int64_t vocab_size = 0;
};

/// A model made ready to run, on one device or on several ranks (EngineOptions::tensor_parallel_size). With several, the runner
/// uses the first rank, which leads the others. Chooses options that are 0. The constructor allocates everything: weights, the
/// ops' workspace, activations, then KV blocks from what is left. Built by Engine and by Evaluator; used from one thread.
class ModelRunner {
 public:
  /// `source` outlives the runner. `logit_slice`: rows of logits that are computed at a time. `backend` null: the backend that options
  /// and model ask for; otherwise there is one rank. Throws Error if an option does not fit the model or the machine. In a process of
  /// another rank than the first (EngineOptions::processes), it follows the first rank to the end and then throws FollowedToEnd.
  ModelRunner(const ModelSource& source, const EngineOptions& options, int32_t logit_slice,
              const LoadProgress& progress = {}, std::unique_ptr<Backend> backend = nullptr);

  const EngineOptions& options() const { return options_; }  ///< all sizes chosen
  Backend& backend() { return model_->backend(); }           ///< the first rank's, as all below
  Decoder& decoder() { return model_->decoder(); }
  const Decoder& decoder() const { return std::as_const(*model_).decoder(); }
  Rank rank() const { return {0, options_.tensor_parallel_size}; }
  const KvCache& kv() const { return model_->kv(); }
  const RecurrentStatePool& states() const { return model_->states(); }

  /// Launches a step on all ranks: Backend::launch_step(), whose ops and passes are filled in.
  LaunchedStep launch(StepArgs step);
  /// Waits for the oldest step: Backend::finish_step().
  void finish(std::span<SampledToken> out);

  /// True if every step that was launched has been waited for.
  bool is_idle() const { return num_open_ == 0; }

  /// The other ranks; null: there is one rank.
  Ranks* ranks() { return ranks_.get(); }

  /// The times of recorded steps on the other ranks, for steps that have finished since the last call. Valid until the next call.
  std::span<const RankStep> take_rank_steps();

  /// Runs a step that draws nothing and has at most `logit_slice` rows of logits, and
  /// waits for it. `batch` is in host memory. `drafts` as in Decoder::forward(). The result is valid until the next call.
  LogitRows logits(const ForwardBatch& batch, bool drafts = false);

 private:
  EngineOptions options_;
  std::unique_ptr<Ranks> ranks_;  ///< null: a rank alone
  std::unique_ptr<RankModel> model_;
  int32_t num_open_ = 0;  ///< steps that are under way
  std::vector<RankStep> rank_steps_;
  std::vector<float> host_logits_;
};

}  // namespace minfer
