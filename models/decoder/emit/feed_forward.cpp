#include "models/decoder/emit/emitter.h"

namespace minfer {

/// activation(gate(x), up(x)), or activation(up(x)): [tokens, ffn].
Tensor emit_feed_forward(Emitter& e, const Tensor& normed) {
  const LayerWeights& w = e.layer_weights();
  const Tensor hidden = e.activations(e.config.ffn_size_of(e.layer));
  if (e.config.architecture.has_gate) {
    e.add("gate_up_swiglu", GateUpArgs{.x = normed,
                                       .gate = w.gate,
                                       .up = w.up,
                                       .out = hidden,
                                       .activation = e.config.architecture.gate,
                                       .gate_bias = w.gate_bias,
                                       .up_bias = w.up_bias});
    return hidden;
  }
  e.add("ffn_up", LinearArgs{.x = normed,
                             .weights = {&w.up, 1},
                             .biases = {&w.up_bias, w.up_bias ? size_t{1} : size_t{0}},
                             .out = hidden});
  e.add("ffn_activate",
        ActivateArgs{
            .x = hidden, .activation = e.config.activations[static_cast<size_t>(e.layer)], .out = hidden});
  return hidden;
}

}  // namespace minfer
