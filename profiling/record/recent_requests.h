#pragma once

#include <cstddef>
#include <vector>

#include "profiling/record/recent_items.h"
#include "profiling/record/recorder.h"

namespace minfer {

/// The last requests that have ended, for those who look on. One that ends while a reader copies is put in at the end of the next step.
class RecentRequests final : public StepSink {
 public:
  static constexpr size_t kMost = 64;

  void consume(const StepRecord&) noexcept override { requests_.put_late(); }
  void consume_request(const EndedRequest& request) noexcept override { requests_.add(request); }
  bool wants_requests() const noexcept override { return false; }
  bool wants_ended_requests() const noexcept override { return true; }

  /// In the order in which they ended. Any thread.
  std::vector<EndedRequest> all() const { return requests_.all(); }

 private:
  RecentItems<EndedRequest> requests_{kMost};
};

}  // namespace minfer
