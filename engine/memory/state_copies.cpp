#include "engine/memory/state_copies.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace minfer {

StateCopies::StateCopies(int32_t first_slot, int32_t num_slots) : num_slots_(num_slots) {
  for (int32_t slot = first_slot + num_slots; slot-- > first_slot;)
    free_.push_back(slot);
}

int32_t StateCopies::use(uint64_t content) {
  const auto found = by_content_.find(content);
  if (found == by_content_.end()) throw std::logic_error("state copies: none of this prefix is kept");
  kept_.splice(kept_.end(), kept_, found->second);
  return found->second->slot;
}

int32_t StateCopies::begin(const Sequence& sequence) {
  if (!has_room()) throw std::logic_error("state copies: all slots are being written");
  if (free_.empty()) {
    free_.push_back(kept_.front().slot);
    by_content_.erase(kept_.front().content);
    kept_.pop_front();
  }
  writing_.push_back({&sequence, free_.back()});
  free_.pop_back();
  return writing_.back().slot;
}

void StateCopies::keep(int32_t slot, uint64_t content) {
  if (contains(content)) {
    use(content);
    return drop(slot);
  }
  end_writing(slot);
  by_content_.emplace(content, kept_.insert(kept_.end(), {content, slot}));
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
