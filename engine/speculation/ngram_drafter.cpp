#include "engine/speculation/ngram_drafter.h"

#include <algorithm>

#include "engine/request/live_request.h"

namespace minfer {
namespace {

constexpr float kUnknownRate = 0.2f;  ///< most texts repeat little; where one does, a few tokens show it

}  // namespace

NgramHitRates NgramHitRates::first_guess() {
  NgramHitRates rates;
  for (size_t i = 0; i < kLongest; ++i)
    rates.rates_[i] = HitRate(0.5f * static_cast<float>(i + 1), 1.0f);
  return rates;
}

size_t NgramHitRates::index(int32_t match_length) {
  return std::min(static_cast<size_t>(std::max(match_length, 1)) - 1, kLongest - 1);
}

NgramDrafter::NgramDrafter(const SpeculationOptions& options, int32_t num_prompt_tokens, NgramHitRates& all)
    : num_prompt_tokens_(num_prompt_tokens),
      index_(options.ngram_min, options.ngram_max, num_prompt_tokens),
      all_(all) {}

void NgramDrafter::follow(std::span<const TokenId> tokens) {
  while (num_followed_ < tokens.size())
    follow_last(tokens.first(++num_followed_));
}

void NgramDrafter::follow_last(std::span<const TokenId> tokens) {
  const NgramIndex::Match found = index_.add(tokens);
  bool was_right = false;
  if (match_.next >= 0) {
    was_right = tokens[static_cast<size_t>(match_.next)] == tokens.back();
    if (std::ssize(tokens) > num_prompt_tokens_) {
      own_.of(match_.length).add(was_right);
      all_.of(match_.length).add(was_right);
    }
  }
  if (was_right && match_.length >= found.length) {
    ++match_.next;
    ++match_.length;
  } else {
    match_ = found;
  }
}

float NgramDrafter::hit_rate(int32_t index) const {
  if (match_.next < 0) return 0.0f;
  const int32_t length = match_.length + index;
  return own_.of(length).value(all_.of(length).value(kUnknownRate));
}

void NgramDrafter::propose(std::span<const TokenId> tokens, int32_t num_drafts,
                           std::vector<TokenId>& drafts) const {
  drafts.clear();
  if (match_.next < 0) return;
  for (int32_t i = 0; i < num_drafts; ++i) {
    const size_t place = static_cast<size_t>(match_.next) + static_cast<size_t>(i);
    drafts.push_back(place < tokens.size() ? tokens[place] : drafts[place - tokens.size()]);
  }
}

namespace {

class NgramSource : public DraftSource {
 public:
  explicit NgramSource(const SpeculationOptions& options) : options_(options) {}

  std::unique_ptr<Drafter> make_drafter(const Sequence& sequence) override {
    return std::make_unique<NgramDrafter>(options_, sequence.num_prompt_tokens, all_);
  }

  void propose(std::span<const DraftOrder> orders) override {
    for (const DraftOrder& order : orders) {
      LiveRequest& request = *order.request;
      static_cast<NgramDrafter&>(*request.drafter).propose(request.tokens, order.num_drafts, request.drafts);
    }
  }

 private:
  const SpeculationOptions options_;
  NgramHitRates all_ = NgramHitRates::first_guess();
};

}  // namespace

std::unique_ptr<DraftSource> make_ngram_source(const SpeculationOptions& options) {
  return std::make_unique<NgramSource>(options);
}

}  // namespace minfer
