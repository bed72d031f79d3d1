#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <vector>

#include "engine/request/drafter.h"
#include "engine/scheduling/batch_builder.h"
#include "engine/speculation/draft_source.h"
#include "kernels/backend.h"

namespace minfer {

/// How good the drafts of a model or a layer are for one sequence. The quality is known only where drafts are checked. If they have not
/// been checked for long, they count as good again, ever more seldom.
class MeasuredDrafter : public Drafter {
 public:
  /// `all`: the hit rate of all sequences, which outlives this one.
  explicit MeasuredDrafter(HitRate& all) : all_(all) {}

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
    retry_after_ = is_due_again() ? std::min(2 * retry_after_, kSeldom) : kSoon;
    num_tokens_at_check_ = num_tokens_;
  }

 protected:
  int32_t num_tokens() const { return num_tokens_; }

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

/// The number of drafts after which their hit rate counts as known.
inline constexpr float kKnownDrafts = 32.0f;

/// A sequence that is being given drafts.
struct DraftJob {
  LiveRequest* request;
  int32_t num_drafts;      ///< the most drafts that it gets
  int32_t num_coming = 0;  ///< drafts that it has got, and those being drawn

  /// The row that draws the next one: as the model would draw that token.
  SamplingRow next_row() const;
};

/// Passes that draw drafts, a token of each sequence in each. A pass is launched while the pass before it runs: the device has the token
/// that it begins with. Engine thread.
class DraftPasses {
 public:
  using Launch = std::function<void(const StepArgs&)>;
  using Finish = std::function<void(std::span<SampledToken>)>;

  /// `builder` outlives this.
  DraftPasses(BatchBuilder& builder, Launch launch, Finish finish)
      : builder_(builder), launch_(std::move(launch)), finish_(std::move(finish)) {}

  /// Adds tokens [first_token, first_token + num_tokens) of a sequence to the pass; of the job's coming draft if there is one. The last
  /// `num_rows` have rows of logits, and the last of these draws the next draft; 0: none is drawn.
  void add(DraftJob& job, int32_t first_token, int32_t num_tokens, int32_t num_rows);
  /// Sequences added so far count as decoding.
  void end_decoding() { batch_.num_decode_sequences = static_cast<int32_t>(batch_.sequences.size()); }
  const ScheduledBatch& batch() const { return batch_; }

  void launch();
  /// Waits for the oldest pass, and gives each sequence that it drew for one more draft. A sequence that can draw none keeps its drafts.
  void finish();
  /// Draws the second and further drafts of the jobs by passes that add_next(job) adds to. Then no pass is under way. Returns the fastest
  /// pass's time in ns, since one-time work, such as loading kernels, is in the first ones; with a single pass under way, its time.
  double finish_all(std::span<DraftJob> jobs, const std::function<void(DraftJob&)>& add_next);

 private:
  /// The jobs of a pass under way, by drawn row; null: the row is not wanted.
  using OpenPass = std::vector<DraftJob*>;

  BatchBuilder& builder_;
  Launch launch_;
  Finish finish_;
  std::array<OpenPass, 2> passes_;
  size_t num_launched_ = 0, num_finished_ = 0;

  // The pass being made.
  ScheduledBatch batch_;
  std::vector<SamplingRow> rows_;
  std::vector<DraftJob*> drawing_;
  std::vector<SampledToken> sampled_;
};

/// The recent mean of a time in ns.
inline void follow(double& mean, double value) {
  mean = mean == 0.0 ? value : 0.8 * mean + 0.2 * value;
}

}  // namespace minfer
