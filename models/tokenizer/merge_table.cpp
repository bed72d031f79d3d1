#include "models/tokenizer/merge_table.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_set>

#include "models/gguf/printable.h"

namespace minfer {
namespace {

struct Parts {
  std::string left;  // running text
  std::string right;
};

Parts parse_merge(const Vocabulary& vocabulary, size_t index) {
  const std::string_view text = vocabulary.merges[index];
  const size_t space = text.find(' ');
  std::optional<std::string> left;
  std::optional<std::string> right;
  if (space != std::string_view::npos) {
    left = running_text(vocabulary.model, text.substr(0, space));
    right = running_text(vocabulary.model, text.substr(space + 1));
  }
  if (!left || !right || left->empty() || right->empty()) {
    fail<FileError>("{}: {}[{}]: '{}', expected two tokens separated by a space", vocabulary.name, kMergesKey,
                    index, printable(text));
  }
  return {*std::move(left), *std::move(right)};
}

std::unordered_set<std::string_view> find_other_texts(const Vocabulary& vocabulary) {
  std::unordered_set<std::string_view> texts;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (!is_mergeable(vocabulary, id)) texts.insert(vocabulary.tokens[static_cast<size_t>(id)]);
  }
  return texts;
}

}  // namespace

MergeTable::MergeTable(const Vocabulary& vocabulary, std::span<const std::string> pieces) {
  plain_ids_.reserve(pieces.size());
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (is_mergeable(vocabulary, id)) plain_ids_.emplace(pieces[static_cast<size_t>(id)], id);
  }
  const std::unordered_set<std::string_view> other_texts = find_other_texts(vocabulary);
  merges_.reserve(vocabulary.merges.size());
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const Parts parts = parse_merge(vocabulary, i);
    const std::string joined = parts.left + parts.right;
    const std::string* texts[] = {&parts.left, &parts.right, &joined};
    // Plain text never becomes a special token or the name of a byte, so a merge that takes or makes one is left out.
    if (std::ranges::any_of(texts, [&](const std::string* text) { return other_texts.contains(*text); })) {
      continue;
    }
    const auto id_of = [&](const std::string& text) {
      if (const TokenId id = find(text); id >= 0) return id;
      fail<FileError>(
          "{}: {}[{}]: '{}', expected two tokens that join to a third; '{}' is not in the vocabulary",
          vocabulary.name, kMergesKey, i, printable(vocabulary.merges[i]), printable(text));
    };
    merges_.push_back({id_of(parts.left), id_of(parts.right), static_cast<int32_t>(i), id_of(joined)});
  }
  std::ranges::sort(merges_, {}, [](const Merge& m) { return std::tuple(m.left, m.right, m.rank); });
  first_.resize(vocabulary.tokens.size() + 1);
  for (const Merge& merge : merges_)
    ++first_[static_cast<size_t>(merge.left) + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
}

TokenId MergeTable::find(std::string_view text) const {
  const auto found = plain_ids_.find(text);
  return found == plain_ids_.end() ? -1 : found->second;
}

const MergeTable::Merge* MergeTable::find(TokenId left, TokenId right) const {
  if (left < 0 || right < 0) return nullptr;
  const auto begin = merges_.begin() + first_[static_cast<size_t>(left)];
  const auto end = merges_.begin() + first_[static_cast<size_t>(left) + 1];
  // A pair that the file lists twice counts by its first rank, which sorts first.
  const auto found = std::ranges::lower_bound(begin, end, right, {}, &Merge::right);
  return found == end || found->right != right ? nullptr : &*found;
}

void MergeTable::merge(std::vector<TokenId>& symbols) const {
  const auto count = static_cast<int32_t>(symbols.size());
  // A doubly linked list over the positions; a merged symbol stays at its left part's.
  std::vector<int32_t> next(symbols.size());
  std::vector<int32_t> previous(symbols.size());
  std::vector<bool> absorbed(symbols.size());
  std::iota(next.begin(), next.end(), 1);
  std::iota(previous.begin(), previous.end(), -1);
  // The rank and the position of the left symbol of pairs that a merge applies to, or applied to when they were queued.
  using Candidate = std::pair<int32_t, int32_t>;
  std::vector<Candidate> queued;
  queued.reserve(symbols.size());
  const auto at = [&](int32_t position) -> TokenId& { return symbols[static_cast<size_t>(position)]; };
  const auto next_of = [&](int32_t position) -> int32_t& { return next[static_cast<size_t>(position)]; };
  const auto merge_at = [&](int32_t position) -> const Merge* {
    const bool pair = position >= 0 && next_of(position) < count;
    return pair ? find(at(position), at(next_of(position))) : nullptr;
  };
  for (int32_t i = 0; i + 1 < count; ++i) {
    if (const Merge* merge = merge_at(i)) queued.emplace_back(merge->rank, i);
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue({}, std::move(queued));
  while (!queue.empty()) {
    const auto [rank, position] = queue.top();
    queue.pop();
    // The pair may have changed since: the merge is made only if it is still what applies there.
    const Merge* merge = absorbed[static_cast<size_t>(position)] ? nullptr : merge_at(position);
    if (merge == nullptr || merge->rank != rank) continue;
    const int32_t right = next_of(position);
    at(position) = merge->merged;
    absorbed[static_cast<size_t>(right)] = true;
    next_of(position) = next_of(right);
    if (next_of(right) < count) previous[static_cast<size_t>(next_of(right))] = position;
    for (const int32_t changed : {previous[static_cast<size_t>(position)], position}) {
      if (const Merge* made = merge_at(changed)) queue.emplace(made->rank, changed);
    }
  }
  size_t kept = 0;
  for (int32_t i = 0; i < count; i = next_of(i))
    symbols[kept++] = at(i);
  symbols.resize(kept);
}

}  // namespace minfer
