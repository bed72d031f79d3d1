#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiling/record/recent_items.h"
#include "profiling/record/recorder.h"

namespace minfer {

/// The last requests that have ended, for viewers. A request that ends while a reader copies is put in at the end of the next step.
/// If as many again wait for a reader, it takes 6.5 MB at the most: for each, its record, an id of up to 160 bytes, and its ClientWait.
class RecentRequests final : public StepSink {
 public:
  static constexpr size_t kMost = 4096;
  static_assert(sizeof(EndedRequest) <= 512);

  void consume(const StepRecord&) noexcept override { requests_.put_late(); }
  void consume_request(const EndedRequest& request) noexcept override { requests_.add(request); }
  bool wants_requests() const noexcept override { return false; }
  bool wants_ended_requests() const noexcept override { return true; }

  /// The last `count`, in the order in which they ended. Any thread.
  std::vector<EndedRequest> last(size_t count) const {
    return requests_.last_while([&](const EndedRequest&) { return count-- > 0; });
  }
  std::vector<EndedRequest> ended_since(int64_t begin_ns) const {
    return requests_.last_while([&](const EndedRequest& request) { return request.end_ns >= begin_ns; });
  }

 private:
  RecentItems<EndedRequest> requests_{kMost};
};

}  // namespace minfer
