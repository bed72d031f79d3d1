#include "models/decoder/memory/recurrent_state_pool.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace minfer {

size_t RecurrentStatePool::slot_bytes(const ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.num_state_layers());
  const auto elements =
      static_cast<size_t>(config.conv_state()) + static_cast<size_t>(config.delta_net.delta_state());
  return layers == 0 ? 0 : layers * elements * sizeof(float);
}

RecurrentStatePool::RecurrentStatePool(Backend& backend, const ModelConfig& config, int32_t num_slots)
    : conv_state_(static_cast<size_t>(config.conv_state())),
      delta_state_(static_cast<size_t>(config.delta_net.delta_state())) {
  layers_.resize(config.layers.size());
  if (!config.is_recurrent() || num_slots == 0) return;
  memory_ = backend.allocate(slot_bytes(config) * static_cast<size_t>(num_slots), "states of sequences");
  auto* next = static_cast<float*>(memory_.data());
  const auto take = [&](int64_t elements) {
    float* const taken = next;
    next += elements * num_slots;
    return taken;
  };
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    if (!config.layer(layer).has_state()) continue;
    RecurrentLayer& states = layers_[static_cast<size_t>(layer)];
    states.delta = take(config.delta_net.delta_state());
    states.conv = take(config.conv_state());
    states.num_slots = num_slots;
  }
}

void RecurrentStatePool::copy(Backend& backend, StateCopy slots) const {
  const auto copy_slot = [&](float* states, size_t elements) {
    const auto slot = [&](int32_t index) { return states + static_cast<size_t>(index) * elements; };
    backend.copy_on_device(slot(slots.to), slot(slots.from), elements * sizeof(float));
  };
  for (const RecurrentLayer& states : layers_) {
    if (states.num_slots == 0) continue;
    if (std::min(slots.from, slots.to) < 0 || std::max(slots.from, slots.to) >= states.num_slots)
      fail("states: a copy of slot {} to {}, expected 0 to {}", slots.from, slots.to, states.num_slots - 1);
    if (delta_state_ > 0) copy_slot(states.delta, delta_state_);
    copy_slot(states.conv, conv_state_);
  }
}

}  // namespace minfer
