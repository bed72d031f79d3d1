#pragma once

#include <cstdint>
#include <vector>

#include "engine/request/sequence.h"

namespace minfer {

/// Which running sequence has which slot of the states that a model's layers keep (StatePool). A slot is taken on admission and given
/// back with the sequence's blocks; there are as many as seats, so none is ever lacking. Steps under way may still write to one that was
/// given back: whoever takes it comes in a step behind them, and begins at position 0, where nothing of it is read.
///
/// Host only; one thread; owned by the scheduler. Without slots (a model without states) it does nothing.
class StateSlots {
 public:
  explicit StateSlots(int32_t num_slots);

  /// Throws std::logic_error if the sequence has one, or none is free.
  void take(Sequence& sequence);
  void give_back(Sequence& sequence);
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }

 private:
  int32_t num_slots_;
  std::vector<int32_t> free_;  ///< the next one last
};

}  // namespace minfer
