#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/speculation/draft_passes.h"

namespace minfer {

/// Drafts by the model's own layer for further tokens (models/decoder/emit/draft.cpp). The model's steps write the layer's keys and values
/// and keep its hidden states, so a sequence has nothing to catch up, also behind a cached prefix. There the hidden state in front of the
/// first token is another one: this changes how good the first drafts are, never the output.
///
/// Engine thread. It shares backend and batch with the model's steps, so there are no drafts while one of them is under way.
class DraftLayer : public DraftSource {
 public:
  /// `builder`: of the model's steps; outlives this. `launch` and `finish`: of any step. `is_idle`: true if none is under way.
  DraftLayer(BatchBuilder& builder, const DraftPasses::Launch& launch, DraftPasses::Finish finish,
             std::function<bool()> is_idle);

  std::unique_ptr<Drafter> make_drafter(const Sequence& sequence) override;
  void propose(std::span<const DraftOrder> orders) override;
  double pass_ns() const override { return pass_ns_; }
  bool needs_idle() const override { return true; }
  bool is_known() const override { return pass_ns_ > 0.0 && all_.count() >= kKnownDrafts; }

 private:
  void add_next(DraftJob& job);

  std::function<bool()> is_idle_;
  DraftPasses passes_;
  HitRate all_;
  double pass_ns_ = 0.0;  ///< recent time of a token for each sequence
  std::vector<DraftJob> jobs_;
};

}  // namespace minfer
