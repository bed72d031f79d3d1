#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engine/request/live_request.h"
#include "kernels/base/thread_pool.h"

namespace minfer {

/// The requests whose grammars are to follow what was drawn for them: several at a time where they have different grammars. What
/// is known of one grammar is for one thread at a time, so its requests take turns. Owned by the engine; engine thread.
///
/// A call does a bounded amount of work (see GrammarWork), so that no grammar holds up the other requests for long: a row that takes more
/// is left pending, and gets further with later calls.
class GrammarRows {
 public:
  struct Row {
    LiveRequest* request = nullptr;
    TokenId token = -1;
    bool is_late = false;  ///< it was pending after the call that came first
    Constraint::Advance next = {};
  };

  /// So that no step starts threads. Throws Error if the system refuses them.
  void start_threads();

  /// `token` is the newest of the request's tokens.
  void add(LiveRequest& request, TokenId token) { rows_.push_back({.request = &request, .token = token}); }
  /// Forgets the request, if it is pending.
  void remove(const LiveRequest& request);
  bool empty() const { return rows_.empty(); }
  /// Has them follow: Row::next, in the order in which they were added, those that are late in front.
  std::span<Row> advance();
  /// Forgets those that are not pending.
  void drop_followed();

 private:
  void advance_heavy();

  std::vector<Row> rows_;
  std::vector<Row*> order_;     ///< rows of one grammar stand together
  std::vector<size_t> firsts_;  ///< of order_: where those of each grammar begin; then its end
  std::vector<Row*> heavy_;
  size_t next_turn_ = 0;  ///< counts on, so that another heavy row is the first each time
  std::optional<ThreadPool> pool_;
};

}  // namespace minfer
