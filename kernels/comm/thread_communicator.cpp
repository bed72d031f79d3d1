#include "kernels/comm/thread_communicator.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "kernels/stamps.h"
#include "kernels/thread_pool.h"

namespace minfer {
namespace {

/// Where the threads of all ranks meet, and what each brings there.
class MeetingPoint {
 public:
  MeetingPoint(int32_t count, std::shared_ptr<RankFailure> failure, std::chrono::milliseconds patience)
      : brought_(static_cast<size_t>(count)), failure_(std::move(failure)), patience_(patience) {}

  int32_t count() const { return static_cast<int32_t>(brought_.size()); }
  /// What rank `index` has brought; valid until all have left.
  void* brought(int32_t index) const { return brought_[static_cast<size_t>(index)]; }

  /// Waits for all ranks, which each bring something.
  void come(Rank rank, void* bring) {
    brought_[static_cast<size_t>(rank.index)] = bring;
    meet(rank);
  }
  /// Waits for all ranks, which read no more of what was brought.
  void leave(Rank rank) { meet(rank); }

 private:
  static constexpr std::chrono::milliseconds kCheckEvery{20};

  void meet(Rank rank) {
    std::unique_lock lock(mutex_);
    failure_->check();
    const uint64_t meeting = meetings_;
    if (++present_ == rank.count) {
      present_ = 0;
      ++meetings_;
      all_are_here_.notify_all();
      return;
    }
    const auto end = std::chrono::steady_clock::now() + patience_;
    while (meetings_ == meeting) {
      all_are_here_.wait_for(lock, kCheckEvery);
      if (meetings_ != meeting) return;
      if (!failure_->is_set() && std::chrono::steady_clock::now() > end)
        failure_->set(fmt::format("rank {} waited {} ms for {} of {} ranks that did not come", rank.index,
                                  patience_.count(), rank.count - present_, rank.count));
      failure_->check();
    }
  }

  std::mutex mutex_;
  std::condition_variable all_are_here_;
  std::vector<void*> brought_;
  int32_t present_ = 0;
  uint64_t meetings_ = 0;
  std::shared_ptr<RankFailure> failure_;
  std::chrono::milliseconds patience_;
};

class ThreadCommunicator final : public HostCommunicator {
 public:
  ThreadCommunicator(Rank rank, std::shared_ptr<MeetingPoint> point)
      : rank_(rank), point_(std::move(point)) {}

  Rank rank() const override { return rank_; }

  /// Each rank sums its share of the elements and writes the sums to all: no two touch one element.
  void all_reduce(std::span<float> values) override {
    come(values.data());
    const IndexRange own = part_of(static_cast<int64_t>(values.size()), rank_.index, rank_.count);
    for (int64_t i = own.begin; i < own.end; ++i) {
      float sum = brought<float>(0)[i];
      for (int32_t of = 1; of < rank_.count; ++of)
        sum += brought<float>(of)[i];
      for (int32_t of = 0; of < rank_.count; ++of)
        brought<float>(of)[i] = sum;
    }
    point_->leave(rank_);
  }

  void gather(std::span<const float> part, std::span<float> all) override {
    come(const_cast<float*>(part.data()));
    for (int32_t of = 0; !all.empty() && of < rank_.count; ++of)
      std::copy_n(brought<float>(of), part.size(), all.data() + static_cast<size_t>(of) * part.size());
    point_->leave(rank_);
  }

  void broadcast(std::span<int32_t> values) override {
    come(values.data());
    if (!rank_.is_first()) std::copy_n(brought<int32_t>(0), values.size(), values.data());
    point_->leave(rank_);
  }

  int64_t arrived_ns() const override { return arrived_ns_; }

 private:
  void come(void* bring) {
    point_->come(rank_, bring);
    arrived_ns_ = now_ns();
  }
  template <class T>
  T* brought(int32_t of) const {
    return static_cast<T*>(point_->brought(of));
  }

  Rank rank_;
  std::shared_ptr<MeetingPoint> point_;
  int64_t arrived_ns_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<HostCommunicator>> make_thread_communicators(int32_t count,
                                                                         std::shared_ptr<RankFailure> failure,
                                                                         std::chrono::milliseconds patience) {
  const auto point = std::make_shared<MeetingPoint>(count, std::move(failure), patience);
  std::vector<std::unique_ptr<HostCommunicator>> communicators;
  for (int32_t index = 0; index < count; ++index)
    communicators.push_back(std::make_unique<ThreadCommunicator>(Rank{index, count}, point));
  return communicators;
}

}  // namespace minfer
