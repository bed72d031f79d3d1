#pragma once

#include "engine/speculation/draft_source.h"
#include "engine/speculation/ngram_drafter.h"

namespace minfer {

/// Drafts by prompt lookup.
class NgramSource : public DraftSource {
 public:
  explicit NgramSource(const SpeculationOptions& options) : options_(options) {}

  std::unique_ptr<Drafter> make_drafter(const Sequence& sequence) override;
  void propose(std::span<const DraftOrder> orders) override;

 private:
  const SpeculationOptions options_;
  NgramHitRates all_ = NgramHitRates::first_guess();
};

}  // namespace minfer
