#include "engine/speculation/ngram_source.h"

#include "engine/request/live_request.h"

namespace minfer {

std::unique_ptr<Drafter> NgramSource::make_drafter(const Sequence& sequence) {
  return std::make_unique<NgramDrafter>(options_, sequence.num_prompt_tokens, all_);
}

void NgramSource::propose(std::span<const DraftOrder> orders) {
  for (const DraftOrder& order : orders) {
    LiveRequest& request = *order.request;
    static_cast<NgramDrafter&>(*request.drafter).propose(request.tokens, order.num_drafts, request.drafts);
  }
}

}  // namespace minfer
