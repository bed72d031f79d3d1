#include "profiling/record/recent_requests.h"

#include <utility>

namespace minfer {

void RecentRequests::put_late() noexcept {
  if (late_.empty()) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  for (EndedRequest& request : late_)
    requests_.push_back(std::move(request));
  late_.clear();
  while (requests_.size() > kMost)
    requests_.pop_front();
}

void RecentRequests::consume_request(const EndedRequest& request) noexcept {
  if (late_.size() == kMost) late_.pop_front();
  late_.push_back(request);
  put_late();
}

std::vector<EndedRequest> RecentRequests::all() const {
  const std::lock_guard lock(mutex_);
  return {requests_.begin(), requests_.end()};
}

}  // namespace minfer
