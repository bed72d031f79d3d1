#include "engine/memory/state_copies.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace minfer {

StateCopies::StateCopies(int32_t first_slot, int32_t num_slots)
    : first_slot_(first_slot), entries_(static_cast<size_t>(num_slots)) {
  free_.reserve(entries_.size());
  for (int32_t slot = first_slot + num_slots; slot-- > first_slot;)
    free_.push_back(slot);
  writing_.reserve(entries_.size());
  slot_of_.reserve(entries_.size());
}

int32_t StateCopies::use(uint64_t content) {
  const auto found = slot_of_.find(content);
  if (found == slot_of_.end()) throw std::logic_error("state copies: none of this prefix is kept");
  unlink(found->second);
  link_newest(found->second);
  return found->second;
}

int32_t StateCopies::begin(const Sequence& sequence) {
  if (!has_room()) throw std::logic_error("state copies: all slots are being written");
  if (free_.empty()) {
    const int32_t evicted = oldest_;
    unlink(evicted);
    slot_of_.erase(entry(evicted).content);
    entry(evicted).content = 0;
    free_.push_back(evicted);
  }
  writing_.push_back({&sequence, free_.back()});
  free_.pop_back();
  return writing_.back().slot;
}

void StateCopies::keep(int32_t slot, uint64_t content) {
  if (slot_of_.contains(content)) {
    use(content);
    return drop(slot);
  }
  end_writing(slot);
  entry(slot).content = content;
  slot_of_.emplace(content, slot);
  link_newest(slot);
}

void StateCopies::drop(int32_t slot) {
  end_writing(slot);
  free_.push_back(slot);
}

void StateCopies::end_writing(int32_t slot) {
  const auto found = std::ranges::find(writing_, slot, &Writing::slot);
  if (found == writing_.end()) throw std::logic_error("state copies: the slot is not being written");
  writing_.erase(found);
}

void StateCopies::abandon(const Sequence& sequence) {
  std::erase_if(writing_, [&](const Writing& each) {
    if (each.sequence != &sequence) return false;
    free_.push_back(each.slot);
    return true;
  });
}

void StateCopies::link_newest(int32_t slot) {
  entry(slot).older = newest_;
  entry(slot).newer = kNone;
  (newest_ == kNone ? oldest_ : entry(newest_).newer) = slot;
  newest_ = slot;
}

void StateCopies::unlink(int32_t slot) {
  const Entry& unlinked = entry(slot);
  (unlinked.older == kNone ? oldest_ : entry(unlinked.older).newer) = unlinked.newer;
  (unlinked.newer == kNone ? newest_ : entry(unlinked.newer).older) = unlinked.older;
}

StateSlots::StateSlots(int32_t num_slots) : num_slots_(num_slots) {
  free_.reserve(static_cast<size_t>(num_slots));
  for (int32_t slot = num_slots; slot-- > 0;)
    free_.push_back(slot);
}

void StateSlots::take(Sequence& sequence) {
  if (num_slots_ == 0) return;
  if (sequence.state_slot >= 0) throw std::logic_error("state slots: the sequence has one already");
  if (free_.empty()) throw std::logic_error("state slots: none is free");
  sequence.state_slot = free_.back();
  free_.pop_back();
}

void StateSlots::give_back(Sequence& sequence) {
  if (sequence.state_slot >= 0) free_.push_back(std::exchange(sequence.state_slot, -1));
}

int64_t next_state_copy(const StateCopyRule& rule, const StateCopyFacts& facts) {
  const int64_t block_size = facts.block_size;
  const auto up_to = [](int64_t tokens, int64_t unit) { return (tokens + unit - 1) / unit * unit; };
  const int64_t earliest =
      std::max(int64_t{facts.last_copy} + rule.least_tokens, int64_t{facts.num_scheduled} + 1);
  int64_t next = up_to(earliest, up_to(rule.interval, block_size));
  for (const int64_t tokens :
       {int64_t{facts.num_prefill} - rule.reopened_tokens, int64_t{facts.num_shared}}) {
    const int64_t end = tokens / block_size * block_size;
    if (end >= earliest) next = std::min(next, end);
  }
  return next;
}

}  // namespace minfer
