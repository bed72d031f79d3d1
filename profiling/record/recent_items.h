#pragma once

#include <cstddef>
#include <deque>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace minfer {

/// The last `most` items that the engine thread added, for viewers. The engine thread never waits for a reader: an item that
/// comes while a reader copies is put in later.
template <class Item>
class RecentItems {
 public:
  explicit RecentItems(size_t most) : most_(most) {}

  /// Engine thread.
  void add(const Item& item) {
    if (late_.size() == most_) late_.pop_front();
    late_.push_back(item);
    put_late();
  }
  /// Engine thread: puts in the items that were delayed by a reader, if there is no reader now.
  void put_late() noexcept {
    if (late_.empty()) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    for (Item& item : late_)
      items_.push_back(std::move(item));
    late_.clear();
    while (items_.size() > most_)
      items_.pop_front();
  }
  /// The items after the last one that `is_wanted` refuses, in order; `is_wanted` is asked from the newest item backwards. Any thread.
  template <class IsWanted>
  std::vector<Item> last_while(IsWanted is_wanted) const {
    const std::lock_guard lock(mutex_);
    auto first = items_.end();
    while (first != items_.begin() && is_wanted(*std::prev(first)))
      --first;
    return {first, items_.end()};
  }

 private:
  const size_t most_;
  mutable std::mutex mutex_;  ///< guards items_; the engine thread only ever tries it
  std::deque<Item> items_;
  std::deque<Item> late_;  ///< engine thread: items that were delayed by a reader
};

}  // namespace minfer
