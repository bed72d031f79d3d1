#include "server/answer/special_text.h"

#include <algorithm>
#include <utility>

namespace minfer {

void SpecialText::see(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (!tokenizer_.is_control(token) || std::ranges::find(seen_, token) != seen_.end()) continue;
    const std::string_view text = tokenizer_.piece(token, true);
    if (text.empty()) continue;
    seen_.push_back(token);
    texts_.push_back(text);
  }
}

std::string SpecialText::push(std::string_view text) {
  if (texts_.empty()) return std::string(text);
  const std::string all = std::exchange(held_, {}).append(text);
  std::string kept;
  for (size_t i = 0; i < all.size();) {
    const std::string_view rest = std::string_view(all).substr(i);
    const auto whole =
        std::ranges::find_if(texts_, [&](std::string_view each) { return rest.starts_with(each); });
    if (whole != texts_.end()) {
      i += whole->size();
    } else if (std::ranges::any_of(texts_, [&](std::string_view each) { return each.starts_with(rest); })) {
      held_ = rest;
      break;
    } else {
      kept += all[i++];
    }
  }
  return kept;
}

std::string SpecialText::finish() {
  return std::exchange(held_, {});
}

}  // namespace minfer
