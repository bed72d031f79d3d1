#include "kernels/comm/rank_failure.h"

#include <utility>

#include "kernels/base/error.h"

namespace minfer {

void RankFailure::set(std::string why) {
  const std::lock_guard lock(mutex_);
  if (is_set()) return;
  why_ = std::move(why);
  is_set_.store(true, std::memory_order_release);
}

std::string RankFailure::reason() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

void RankFailure::throw_reason() const {
  throw DeviceError(reason());
}

}  // namespace minfer
