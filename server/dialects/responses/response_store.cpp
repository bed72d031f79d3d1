#include "server/dialects/responses/response_store.h"

#include <iterator>
#include <utility>

namespace minfer {

void ResponseStore::put(const std::string& id, StoredResponse response) {
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

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return entries_.front().response;
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return false;
  drop(found->second);
  return true;
}

void ResponseStore::drop(Entries::iterator entry) {
  bytes_ -= entry->bytes;
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

}  // namespace minfer
