#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/request/live_request.h"
#include "kernels/thread_pool.h"

namespace minfer {

/// The requests of a step whose grammars are to follow what was drawn for them: several at a time where they have different grammars. What
/// is known of one grammar is for one thread at a time, so its requests take turns. Owned by the engine; engine thread.
class GrammarRows {
 public:
  struct Row {
    LiveRequest* request = nullptr;
    TokenId token = -1;
    Constraint::Advance next = {};
  };

  /// So that no step starts threads. Throws Error if the system refuses them.
  void start_threads();

  void clear() { rows_.clear(); }
  /// `token` is the newest of the request's tokens.
  void add(LiveRequest& request, TokenId token) { rows_.push_back({&request, token}); }
  bool empty() const { return rows_.empty(); }
  /// Has them follow: Row::next, in the order in which they were added.
  std::span<const Row> advance();

 private:
  std::vector<Row> rows_;
  std::vector<Row*> order_;     ///< rows of one grammar stand together
  std::vector<size_t> firsts_;  ///< of order_: where those of each grammar begin; then its end
  std::optional<ThreadPool> pool_;
};

}  // namespace minfer
