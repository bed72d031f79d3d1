#include "engine/request/grammar_rows.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

namespace minfer {
namespace {

/// The rest of the cores are for the device's ops, or for other threads of the server.
constexpr int32_t kMostThreads = 4;

// Work of one call. A row that has needed more than a light row's slice takes its turn among the
// heavy ones: each call has time for one heavy row, or for several that turn out to be light.
constexpr int64_t kLightSlice = 200'000;
constexpr int64_t kMostLightWork = 400'000;
constexpr int64_t kMostHeavyWork = 100'000;

const TokenGrammar* grammar_of(const GrammarRows::Row* row) {
  return &row->request->constraint->grammar();
}

/// Does as much work as is left of `most`, or of `slice`.
void follow(GrammarRows::Row& row, int64_t slice, std::atomic<int64_t>& most) {
  Constraint& constraint = *row.request->constraint;
  const auto allowed = static_cast<size_t>(std::clamp<int64_t>(most, 0, slice));
  const int32_t num_output = row.request->num_output_tokens();
  row.next = constraint.advance(row.token, num_output, row.request->max_tokens - num_output, allowed);
  most -= static_cast<int64_t>(row.next.work);
  // A heavy row stays heavy until it has had a light token.
  row.request->has_heavy_grammar = row.next.is_pending || constraint.work() > kLightSlice;
}

}  // namespace

void GrammarRows::start_threads() {
  if (!pool_) pool_.emplace(std::min(kMostThreads, num_cores()));
}

std::span<GrammarRows::Row> GrammarRows::advance() {
  order_.clear();
  heavy_.clear();
  for (Row& row : rows_)
    (row.request->has_heavy_grammar ? heavy_ : order_).push_back(&row);
  std::ranges::sort(order_, std::less<>(), [](const Row* row) { return std::pair(grammar_of(row), row); });
  firsts_.clear();
  for (size_t i = 0; i < order_.size(); ++i) {
    if (i == 0 || grammar_of(order_[i]) != grammar_of(order_[i - 1])) firsts_.push_back(i);
  }
  const auto num_grammars = static_cast<int64_t>(firsts_.size());
  firsts_.push_back(order_.size());
  std::atomic<int64_t> most = kMostLightWork;
  pool_->parallel_for(num_grammars, [&](int64_t grammar, int32_t) {
    const auto index = static_cast<size_t>(grammar);
    for (size_t i = firsts_[index]; i < firsts_[index + 1]; ++i)
      follow(*order_[i], kLightSlice, most);
  });
  advance_heavy();
  return rows_;
}

void GrammarRows::advance_heavy() {
  std::atomic<int64_t> most = kMostHeavyWork;
  ++next_turn_;
  for (size_t i = 0; i < heavy_.size(); ++i) {
    Row& row = *heavy_[(next_turn_ + i) % heavy_.size()];
    if (most > 0 || !row.is_late) follow(row, kMostHeavyWork, most);
  }
}

void GrammarRows::drop_followed() {
  std::erase_if(rows_, [](const Row& row) { return !row.next.is_pending; });
  for (Row& row : rows_)
    row.is_late = true;
}

void GrammarRows::remove(const LiveRequest& request) {
  std::erase_if(rows_, [&request](const Row& row) { return row.request == &request; });
}

}  // namespace minfer
