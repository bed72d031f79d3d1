#include "kernels/comm/meeting_point.h"

#include <thread>
#include <utility>

#include <fmt/format.h>

namespace minfer {
namespace {

constexpr std::chrono::milliseconds kCheckEvery{20};
/// Ranks that run alike arrive within microseconds; sleeping and waking takes several times as long.
constexpr std::chrono::microseconds kAwake{50};

}  // namespace

MeetingPoint::MeetingPoint(int32_t count, std::shared_ptr<RankFailure> failure,
                           std::chrono::milliseconds patience)
    : brought_(static_cast<size_t>(count)), failure_(std::move(failure)), patience_(patience) {}

void MeetingPoint::meet(Rank rank) {
  std::unique_lock lock(mutex_);
  failure_->check();
  const uint64_t meeting = meetings_;
  if (++present_ == rank.count) {
    present_ = 0;
    ++meetings_;
    all_are_here_.notify_all();
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto end = begin + patience_;
  lock.unlock();
  while (std::chrono::steady_clock::now() < begin + kAwake) {
    if (meetings_.load(std::memory_order_acquire) != meeting) return;
    std::this_thread::yield();
  }
  lock.lock();
  while (meetings_ == meeting) {
    all_are_here_.wait_for(lock, kCheckEvery);
    if (meetings_ != meeting) return;
    if (!failure_->is_set() && std::chrono::steady_clock::now() > end)
      failure_->set(fmt::format("rank {} waited {} ms for {} of {} ranks that did not come", rank.index,
                                patience_.count(), rank.count - present_, rank.count));
    failure_->check();
  }
}

}  // namespace minfer
