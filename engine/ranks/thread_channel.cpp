#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "engine/ranks/rank_channel.h"
#include "kernels/comm/rank_failure.h"

namespace minfer {
namespace {

/// The state that all ranks share: a queue for each rank that follows, and the place where they meet.
class Exchange {
 public:
  Exchange(int32_t count, std::shared_ptr<RankFailure> failure)
      : queues_(static_cast<size_t>(count)), failure_(std::move(failure)) {}

  void send(std::span<const std::byte> message) {
    {
      const std::lock_guard lock(mutex_);
      failure_->check();
      for (size_t rank = 1; rank < queues_.size(); ++rank)
        queues_[rank].emplace_back(message.begin(), message.end());
    }
    changed_.notify_all();
  }

  std::vector<std::byte> receive(int32_t rank) {
    std::unique_lock lock(mutex_);
    std::deque<std::vector<std::byte>>& queue = queues_[static_cast<size_t>(rank)];
    wait(lock, [&] { return !queue.empty(); });
    std::vector<std::byte> message = std::move(queue.front());
    queue.pop_front();
    return message;
  }

  int64_t least(int64_t value) {
    std::unique_lock lock(mutex_);
    const uint64_t meeting = meetings_;
    least_ = present_ == 0 ? value : std::min(least_, value);
    if (++present_ == static_cast<int32_t>(queues_.size())) {
      present_ = 0;
      agreed_ = least_;
      ++meetings_;
      changed_.notify_all();
    } else {
      wait(lock, [&] { return meetings_ != meeting; });
    }
    return agreed_;
  }

 private:
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, Condition condition) {
    constexpr std::chrono::milliseconds kCheckEvery{20};
    while (!changed_.wait_for(lock, kCheckEvery, condition))
      failure_->check();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<std::vector<std::byte>>> queues_;
  int32_t present_ = 0;
  uint64_t meetings_ = 0;
  int64_t least_ = 0;
  int64_t agreed_ = 0;
  std::shared_ptr<RankFailure> failure_;
};

class ThreadChannel final : public RankChannel {
 public:
  ThreadChannel(Rank rank, std::shared_ptr<Exchange> exchange)
      : rank_(rank), exchange_(std::move(exchange)) {}
  Rank rank() const override { return rank_; }
  void send(std::span<const std::byte> message) override { exchange_->send(message); }
  std::span<const std::byte> receive() override { return message_ = exchange_->receive(rank_.index); }
  int64_t least(int64_t value) override { return exchange_->least(value); }

 private:
  Rank rank_;
  std::shared_ptr<Exchange> exchange_;
  std::vector<std::byte> message_;
};

}  // namespace

std::vector<std::unique_ptr<RankChannel>> make_thread_channels(int32_t count,
                                                               std::shared_ptr<RankFailure> failure) {
  const auto exchange = std::make_shared<Exchange>(count, std::move(failure));
  std::vector<std::unique_ptr<RankChannel>> channels;
  for (int32_t index = 0; index < count; ++index)
    channels.push_back(std::make_unique<ThreadChannel>(Rank{index, count}, exchange));
  return channels;
}

}  // namespace minfer
