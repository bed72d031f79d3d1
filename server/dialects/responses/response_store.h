#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

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
  void put(const std::string& id, StoredResponse response);
  /// Null: there is no such response, or no longer.
  std::shared_ptr<const StoredResponse> find(const std::string& id);
  bool erase(const std::string& id);

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<const StoredResponse> response;
    size_t bytes = 0;
  };
  using Entries = std::list<Entry>;

  void drop(Entries::iterator entry);

  const Limits limits_;
  std::mutex mutex_;
  Entries entries_;  ///< the most recently used first
  std::unordered_map<std::string_view, Entries::iterator> by_id_;
  size_t bytes_ = 0;
};

}  // namespace minfer
