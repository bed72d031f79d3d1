#include "engine/memory/state_slots.h"

#include <stdexcept>
#include <utility>

namespace minfer {

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

}  // namespace minfer
