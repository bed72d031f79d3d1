#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "profiling/record/recorder.h"

namespace minfer {

/// The last requests that have ended, for those who look on. The engine thread never waits for a reader: a request that ends
/// while one copies is put in at the end of the next step.
class RecentRequests final : public StepSink {
 public:
  static constexpr size_t kMost = 64;

  void consume(const StepRecord&) noexcept override { put_late(); }
  void consume_request(const EndedRequest& request) noexcept override;
  bool wants_requests() const noexcept override { return false; }
  bool wants_ended_requests() const noexcept override { return true; }

  /// In the order in which they ended. Any thread.
  std::vector<EndedRequest> all() const;

 private:
  void put_late() noexcept;

  mutable std::mutex mutex_;           ///< guards requests_; the engine thread only ever tries it
  std::deque<EndedRequest> requests_;  ///< kMost at most
  std::deque<EndedRequest> late_;      ///< engine thread: those that found a reader; kMost at most
};

}  // namespace minfer
