#include "models/grammar/text_set.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "kernels/error.h"
#include "models/grammar/grammar_source.h"

namespace minfer {
namespace {

constexpr int kMaxBranchings = 200;  // within each other; what is below them is not shared

/// What is behind the first `begin` bytes of texts that are sorted, different, and equal up to there.
GrammarBuilder::Expr tree_of(GrammarBuilder& builder, std::span<const std::string> texts, size_t begin,
                             int branchings) {
  const auto rest = [&](const std::string& text) { return std::string_view(text).substr(begin); };
  std::vector<GrammarBuilder::Expr> choices;
  if (branchings == kMaxBranchings) {
    for (const std::string& text : texts)
      choices.push_back(builder.literal(rest(text)));
    return builder.choice(choices);
  }
  if (texts.front().size() == begin) {
    choices.push_back(builder.empty());
    texts = texts.subspan(1);
  }
  while (!texts.empty()) {
    const char next = texts.front()[begin];
    const auto size =
        std::ranges::find_if(texts, [&](const auto& text) { return text[begin] != next; }) - texts.begin();
    const std::string_view first = rest(texts.front());
    const std::string_view last = rest(texts[static_cast<size_t>(size) - 1]);
    const auto common = static_cast<size_t>(std::ranges::mismatch(first, last).in1 - first.begin());
    const GrammarBuilder::Expr tail =
        tree_of(builder, texts.first(static_cast<size_t>(size)), begin + common, branchings + 1);
    choices.push_back(builder.sequence({builder.literal(first.substr(0, common)), tail}));
    texts = texts.subspan(static_cast<size_t>(size));
  }
  return builder.choice(choices);
}

}  // namespace

GrammarBuilder::Expr one_of(GrammarBuilder& builder, std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? builder.nothing() : tree_of(builder, texts, 0, 0);
}

GrammarBuilder::Expr add_choices(GrammarBuilder& builder, const std::vector<std::string>& choices) {
  if (choices.empty()) fail<GrammarError>("choices: at least one expected, found none");
  return one_of(builder, choices);
}

}  // namespace minfer
