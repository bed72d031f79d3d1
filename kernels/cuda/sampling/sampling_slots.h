#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/base/error_types.h"
#include "kernels/sampling.h"

namespace minfer::cuda {

/// True if a row reads tables that outlive its step: its penalties change a logit, or its biases do not fit into the row.
inline bool needs_slot(const SamplingRow& row) {
  const bool has_counts = has_penalties(row) && (!row.history.empty() || row.pending_row >= 0);
  return has_counts || row.biases.size() > size_t{kMaxLooseBiases};
}

/// Keeps which slot (row of the device's sampling tables) each sequence has, and what of the sequence's state is there.
/// A sequence keeps its slot until another one needs it: then the sequence that has drawn nothing for the longest time
/// loses its slot. A slot only holds what the host knows too, so losing it costs one upload. Host only; one thread.
class SamplingSlots {
 public:
  struct Placement {
    int32_t slot = -1;           ///< -1: the row needs none
    bool is_new = false;         ///< the slot was another sequence's: its counts must be cleared
    int32_t num_counted = 0;     ///< tokens of the row's history that are counted there
    bool brings_biases = false;  ///< the row's biases are not there
  };

  /// `num_slots`: at least the states of a step.
  explicit SamplingSlots(int32_t num_slots) : slots_(static_cast<size_t>(num_slots)) {}

  /// Call it before the rows of each step, which do not take one another's slots.
  void begin_step() { ++step_; }

  /// The row's slot. From now on it counts as holding all of the row's history and biases.
  Placement place(const SamplingRow& row) {
    if (!needs_slot(row)) return {};
    if (row.state == 0) throw Error("sample: a row with penalties or many biases, but of no sequence");
    Placement placement;
    placement.slot = slot_of(row.state, placement.is_new);
    Slot& slot = slots_[static_cast<size_t>(placement.slot)];
    slot.last_step = step_;
    const auto history = has_penalties(row) ? static_cast<int32_t>(row.history.size()) : 0;
    if (history < slot.num_counted) throw Error("sample: the history of a sequence has shrunk");
    placement.num_counted = slot.num_counted;
    slot.num_counted = history;
    placement.brings_biases = row.biases.size() > std::max(slot.num_biases, size_t{kMaxLooseBiases});
    if (placement.brings_biases) slot.num_biases = row.biases.size();
    return placement;
  }

 private:
  struct Slot {
    uint64_t state = 0;  ///< 0: no sequence's
    uint64_t last_step = 0;
    int32_t num_counted = 0;
    size_t num_biases = 0;
  };

  int32_t slot_of(uint64_t state, bool& is_new) {
    const auto found = slot_of_state_.find(state);
    if (found != slot_of_state_.end()) return found->second;
    const auto oldest = std::min_element(
        slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.last_step < b.last_step; });
    if (oldest == slots_.end() || oldest->last_step == step_)
      throw Error("sample: a step with rows of more sequences than there are slots");
    slot_of_state_.erase(oldest->state);
    *oldest = {.state = state};
    const auto slot = static_cast<int32_t>(oldest - slots_.begin());
    slot_of_state_.emplace(state, slot);
    is_new = true;
    return slot;
  }

  std::vector<Slot> slots_;
  std::unordered_map<uint64_t, int32_t> slot_of_state_;
  uint64_t step_ = 0;
};

}  // namespace minfer::cuda
