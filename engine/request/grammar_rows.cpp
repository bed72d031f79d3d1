#include "engine/request/grammar_rows.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace minfer {
namespace {

/// The rest of the cores are for the device's ops, or for other threads of the server.
constexpr int32_t kMostThreads = 4;

const TokenGrammar* grammar_of(const GrammarRows::Row* row) {
  return &row->request->constraint->grammar();
}

void follow(GrammarRows::Row& row) {
  const int32_t num_output = row.request->num_output_tokens();
  row.next = row.request->constraint->advance(row.token, num_output, row.request->max_tokens - num_output);
}

}  // namespace

void GrammarRows::start_threads() {
  if (!pool_) pool_.emplace(std::min(kMostThreads, num_cores()));
}

std::span<const GrammarRows::Row> GrammarRows::advance() {
  order_.clear();
  for (Row& row : rows_)
    order_.push_back(&row);
  std::ranges::sort(order_, std::less<>(), [](const Row* row) { return std::pair(grammar_of(row), row); });
  firsts_.clear();
  for (size_t i = 0; i < order_.size(); ++i) {
    if (i == 0 || grammar_of(order_[i]) != grammar_of(order_[i - 1])) firsts_.push_back(i);
  }
  const auto num_grammars = static_cast<int64_t>(firsts_.size());
  firsts_.push_back(order_.size());
  pool_->parallel_for(num_grammars, [&](int64_t grammar, int32_t) {
    const auto index = static_cast<size_t>(grammar);
    for (size_t i = firsts_[index]; i < firsts_[index + 1]; ++i)
      follow(*order_[i]);
  });
  return rows_;
}

}  // namespace minfer
