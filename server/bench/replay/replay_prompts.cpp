#include <algorithm>
#include <random>

#include "server/bench/bench_workload.h"
#include "server/bench/replay/replay.h"

namespace minfer {

ReplayPrompts::ReplayPrompts(std::span<const EndedRequest> requests, const Tokenizer& tokenizer,
                             uint64_t seed)
    : tokenizer_(tokenizer), seed_(seed) {
  for (const EndedRequest& request : requests)
    add(request);
  longest_ = {};
}

void ReplayPrompts::add(const EndedRequest& request) {
  const size_t index = prompts_.size();
  Prompt prompt{.length = request.prompt_tokens};
  prompts_.push_back(prompt);
  int32_t most = prompt.length - 1;  // of the tokens that it shares
  auto end = static_cast<int32_t>(EndedRequest::kShortestPrefix);
  uint64_t prefix = 0;
  bool agrees = true;
  for (const uint32_t hash : request.prefixes()) {
    prefix = (prefix ^ hash) * kOdd;
    prefix ^= prefix >> 32;
    size_t& longest = longest_.try_emplace(prefix, index).first->second;
    if (agrees && longest == index) most = end - 1;
    agrees = agrees && longest != index;
    if (agrees) prompt = {.length = prompt.length, .num_shared = end, .donor = longest};
    if (prompts_[longest].length < prompt.length) longest = index;
    end *= 2;
  }
  if (prompt.num_shared == 0) return;
  const int32_t most_cached = std::min({request.cached_tokens, most, prompts_[prompt.donor].length});
  prompt.num_shared = std::max(prompt.num_shared, most_cached);
  // So a chain of donors is never longer than the prompt.
  while (prompts_[prompt.donor].num_shared >= prompt.num_shared)
    prompt.donor = prompts_[prompt.donor].donor;
  prompts_.back() = prompt;
}

std::vector<TokenId> ReplayPrompts::draw(size_t request) const {
  std::vector<TokenId> tokens(static_cast<size_t>(prompts_[request].length));
  for (int32_t end = prompts_[request].length; end > 0; request = prompts_[request].donor) {
    const int32_t begin = std::min(prompts_[request].num_shared, end);
    std::mt19937_64 random(seed_ ^ (request + 1) * kOdd);
    std::ranges::copy(random_tokens(tokenizer_, end - begin, random), tokens.begin() + begin);
    end = begin;
  }
  return tokens;
}

}  // namespace minfer
