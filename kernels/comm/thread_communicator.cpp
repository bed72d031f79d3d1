#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/thread_pool.h"
#include "kernels/comm/host_communicator.h"
#include "kernels/comm/meeting_point.h"

namespace minfer {
namespace {

class ThreadCommunicator final : public HostCommunicator {
 public:
  ThreadCommunicator(Rank rank, std::shared_ptr<MeetingPoint> point)
      : rank_(rank), point_(std::move(point)) {}

  Rank rank() const override { return rank_; }

  /// Each rank sums its share of the elements and writes the sums to all ranks, so no two ranks touch one element.
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
