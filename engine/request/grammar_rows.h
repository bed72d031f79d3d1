#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engine/request/live_request.h"
#include "kernels/base/thread_pool.h"

namespace minfer {

/// The requests whose grammars must follow their newly drawn tokens. Requests with different grammars run at the same time.
/// Requests of one grammar take turns, since one thread at a time may use its states. Owned by the engine; engine thread.
///
/// A call does a bounded amount of work (see GrammarWork), so that no grammar holds up the
/// other requests for long. A row that takes more stays pending, and later calls continue it.
class GrammarRows {
 public:
  struct Row {
    LiveRequest* request = nullptr;
    TokenId token = -1;
    bool is_late = false;  ///< it was pending after its first call
    Constraint::Advance next = {};
  };

  /// Starts the threads, so that no step has to. Throws Error if the system refuses them.
  void start_threads();

  /// `token` is the newest of the request's tokens.
  void add(LiveRequest& request, TokenId token) { rows_.push_back({.request = &request, .token = token}); }
  /// Forgets the request's row, if it is pending.
  void remove(const LiveRequest& request);
  bool empty() const { return rows_.empty(); }
  /// Follows the rows' tokens and sets Row::next. Returns the rows in the order in which they were added, the late ones in front.
  std::span<Row> advance();
  /// Forgets the rows that are not pending.
  void drop_followed();

 private:
  void advance_heavy();

  std::vector<Row> rows_;
  std::vector<Row*> order_;     ///< rows of one grammar stand together
  std::vector<size_t> firsts_;  ///< of order_: where those of each grammar begin; then its end
  std::vector<Row*> heavy_;
  size_t next_turn_ = 0;  ///< counts up, so that each time another heavy row is first
  std::optional<ThreadPool> pool_;
};

}  // namespace minfer
