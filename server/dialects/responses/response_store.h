#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace minfer {

/// A kept response of /v1/responses.
struct StoredResponse {
  std::string body;  ///< the body that the client got
  /// The conversation before its answer: a JSON list of messages for the template, without its closing bracket.
  std::shared_ptr<const std::string> history;
  std::string answer;  ///< the message that continues the history, JSON

  size_t history_bytes() const { return (history ? history->size() : 0) + answer.size(); }
};

/// Responses that clients can come back to, in memory. Their number and
/// bytes are bounded; the least recently used are dropped. Any thread.
class ResponseStore {
 public:
  struct Limits {
    size_t entries = 4096;
    size_t bytes = size_t{64} << 20;
  };
  explicit ResponseStore(Limits limits) : limits_(limits) {}

  /// Does not keep a response larger than the limit.
  void put(const std::string& id, StoredResponse response) {
    const size_t bytes = id.size() + response.body.size() + response.history_bytes();
    const std::lock_guard lock(mutex_);
    if (const auto found = by_id_.find(id); found != by_id_.end()) drop(found->second);
    if (bytes > limits_.bytes || limits_.entries == 0) return;
    while (entries_.size() >= limits_.entries || bytes_ + bytes > limits_.bytes)
      drop(std::prev(entries_.end()));
    entries_.push_front({id, std::make_shared<const StoredResponse>(std::move(response)), bytes});
    by_id_.emplace(entries_.front().id, entries_.begin());
    bytes_ += bytes;
  }
  /// Null: there is no such response, or no longer.
  std::shared_ptr<const StoredResponse> find(const std::string& id) {
    const std::lock_guard lock(mutex_);
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return entries_.front().response;
  }
  bool erase(const std::string& id) {
    const std::lock_guard lock(mutex_);
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return false;
    drop(found->second);
    return true;
  }

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<const StoredResponse> response;
    size_t bytes = 0;
  };
  using Entries = std::list<Entry>;

  void drop(Entries::iterator entry) {
    bytes_ -= entry->bytes;
    by_id_.erase(entry->id);
    entries_.erase(entry);
  }

  const Limits limits_;
  std::mutex mutex_;
  Entries entries_;  ///< the most recently used first
  std::unordered_map<std::string_view, Entries::iterator> by_id_;
  size_t bytes_ = 0;
};

}  // namespace minfer
