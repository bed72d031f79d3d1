#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "profiling/record/recorder.h"

namespace minfer {

/// The last requests that have ended, and the last steps' times on each of several ranks, for viewers. The engine thread never waits for a
/// reader: an item that comes while a reader copies is put in with the next one, or at the end of the next step.
class RecentRecords final : public StepSink {
 public:
  /// The requests are 6.5 MB at the most, if as many again wait for a reader: for each, its record, an id of up to 160 bytes, and its
  /// ClientWait. The times of steps, of all ranks together, are 400 KB.
  static constexpr size_t kMost = 4096;  ///< of each
  static_assert(sizeof(EndedRequest) <= 512);

  void consume(const StepRecord&) noexcept override {
    requests_.put_late();
    rank_steps_.put_late();
  }
  void consume_request(const EndedRequest& request) noexcept override { requests_.add(request); }
  void consume_rank_step(const RankStep& step) noexcept override { rank_steps_.add(step); }
  bool wants_requests() const noexcept override { return false; }
  bool wants_ended_requests() const noexcept override { return true; }

  /// The last `count` requests, in the order in which they ended. Any thread, as below.
  std::vector<EndedRequest> last_requests(size_t count) const {
    return requests_.last_while([&](const EndedRequest&) { return count-- > 0; });
  }
  std::vector<EndedRequest> requests_since(int64_t begin_ns) const {
    return requests_.last_while([&](const EndedRequest& request) { return request.end_ns >= begin_ns; });
  }
  /// In the order in which they came; none with one rank.
  std::vector<RankStep> rank_steps() const {
    return rank_steps_.last_while([](const RankStep&) { return true; });
  }

 private:
  /// Items that the engine thread adds.
  template <class Item>
  class Items {
   public:
    void add(const Item& item) {
      if (late_.size() == kMost) late_.pop_front();
      late_.push_back(item);
      put_late();
    }
    /// Puts in the items that were delayed by a reader, if there is no reader now.
    void put_late() noexcept {
      if (late_.empty()) return;
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock) return;
      for (Item& item : late_)
        items_.push_back(std::move(item));
      late_.clear();
      while (items_.size() > kMost)
        items_.pop_front();
    }
    /// The items after the last one that `is_wanted` refuses, in order; `is_wanted` is asked from the newest item backwards.
    template <class IsWanted>
    std::vector<Item> last_while(IsWanted is_wanted) const {
      const std::lock_guard lock(mutex_);
      auto first = items_.end();
      while (first != items_.begin() && is_wanted(*std::prev(first)))
        --first;
      return {first, items_.end()};
    }

   private:
    mutable std::mutex mutex_;  ///< guards items_; the engine thread only ever tries it
    std::deque<Item> items_;
    std::deque<Item> late_;  ///< engine thread: items that were delayed by a reader
  };

  Items<EndedRequest> requests_;
  Items<RankStep> rank_steps_;
};

}  // namespace minfer
