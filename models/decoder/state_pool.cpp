#include "models/decoder/state_pool.h"

namespace minfer {

size_t StatePool::slot_bytes(const ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.num_delta_layers());
  const auto elements = static_cast<size_t>(config.delta_net.conv_state()) +
                        static_cast<size_t>(config.delta_net.delta_state());
  return layers == 0 ? 0 : layers * elements * sizeof(float);
}

StatePool::StatePool(Backend& backend, const ModelConfig& config, int32_t num_slots) {
  layers_.resize(static_cast<size_t>(config.num_layers));
  if (!config.has_states() || num_slots == 0) return;
  memory_ = backend.allocate(slot_bytes(config) * static_cast<size_t>(num_slots), "states of sequences");
  auto* next = static_cast<float*>(memory_.data());
  const auto take = [&](int64_t elements) {
    float* const taken = next;
    next += elements * num_slots;
    return taken;
  };
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    if (!config.is_delta_net(layer)) continue;
    StateLayer& states = layers_[static_cast<size_t>(layer)];
    states.delta = take(config.delta_net.delta_state());
    states.conv = take(config.delta_net.conv_state());
    states.num_slots = num_slots;
  }
}

}  // namespace minfer
