#include "engine/speculation/draft_layer.h"

#include <utility>

#include "engine/request/live_request.h"

namespace minfer {

DraftLayer::DraftLayer(BatchBuilder& builder, const DraftPasses::Launch& launch, DraftPasses::Finish finish,
                       std::function<bool()> is_idle)
    : is_idle_(std::move(is_idle)),
      passes_(
          builder,
          [launch](StepArgs step) {
            step.drafts = true;
            launch(step);
          },
          std::move(finish)) {}

std::unique_ptr<Drafter> DraftLayer::make_drafter(const Sequence& /*sequence*/) {
  return std::make_unique<MeasuredDrafter>(all_);
}

void DraftLayer::propose(std::span<const DraftOrder> orders) {
  if (!is_idle_()) return;
  jobs_.clear();
  for (const DraftOrder& order : orders)
    jobs_.push_back({order.request, order.num_drafts});
  for (DraftJob& job : jobs_)
    add_next(job);
  passes_.launch();
  follow(pass_ns_, passes_.finish_all(jobs_, [this](DraftJob& job) { add_next(job); }));
}

/// Adds the newest token of a sequence to the pass, or its coming draft.
void DraftLayer::add_next(DraftJob& job) {
  passes_.add(job, job.request->size() - 1 + job.num_coming, 1, 1);
  passes_.end_decoding();
}

}  // namespace minfer
