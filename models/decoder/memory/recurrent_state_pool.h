#pragma once

#include <vector>

#include "kernels/backend.h"
#include "models/decoder/config/config.h"

namespace minfer {

/// The memory of sequences' states beside keys and values (gated delta nets, Mamba-2, short convolutions), allocated once as slots of one size. A
/// slot holds one sequence's states of all layers, while the sequence runs or as a copy for the prefix cache. The scheduler assigns
/// slots. Without such layers the pool holds nothing.
class RecurrentStatePool {
 public:
  RecurrentStatePool(Backend& backend, const ModelConfig& config, int32_t num_slots);

  /// Copies in order with the steps launched before and after.
  void copy(Backend& backend, StateCopy slots) const;

  const RecurrentLayer& layer(int32_t index) const { return layers_[static_cast<size_t>(index)]; }
  size_t bytes() const { return memory_.bytes(); }

  /// The bytes of a slot: the states of a sequence of any length.
  static size_t slot_bytes(const ModelConfig& config);

 private:
  Buffer memory_;
  size_t conv_state_, delta_state_;     ///< elements of a slot of a layer
  std::vector<RecurrentLayer> layers_;  ///< of ModelConfig::layers; null for layers without states
};

}  // namespace minfer
