#pragma once

#include <vector>

#include "kernels/backend.h"
#include "models/decoder/config/config.h"

namespace minfer {

/// The memory of what layers keep of a sequence beside keys and values (gated delta nets, short convolutions), allocated once: slots of one size, each a
/// sequence's states of all layers, while it runs or copied for the prefix cache. Who has which slot is the scheduler's business. Without such
/// layers it holds nothing.
class RecurrentStatePool {
 public:
  RecurrentStatePool(Backend& backend, const ModelConfig& config, int32_t num_slots);

  /// In order with the steps that are launched before and behind it.
  void copy(Backend& backend, StateCopy slots) const;

  const RecurrentLayer& layer(int32_t index) const { return layers_[static_cast<size_t>(index)]; }
  size_t bytes() const { return memory_.bytes(); }

  /// Of a sequence, whatever its length.
  static size_t slot_bytes(const ModelConfig& config);

 private:
  Buffer memory_;
  size_t conv_state_, delta_state_;     ///< elements of a slot of a layer
  std::vector<RecurrentLayer> layers_;  ///< [num_layers]; of layers that attend null
};

}  // namespace minfer
