#include "models/decoder/emit/emitter.h"

namespace minfer {

namespace {

/// gelu(gates above a cut) up(x). The cut needs the whole row of gates, so gate and up are a product of their own.
Tensor emit_cut_feed_forward(Emitter& e, const Tensor& normed, float cut) {
  constexpr int64_t kHead = 128;  // the columns that a warp of a GPU takes
  const LayerWeights& w = e.layer_weights();
  const int64_t size = e.config.ffn_size_of(e.layer);
  const Tensor gate_up = e.f32(2 * size), hidden = e.activations(size);
  const Tensor gate = Emitter::columns(gate_up, 0, size), up = Emitter::columns(gate_up, size, size);
  e.add("gate_up", LinearArgs{.x = normed, .weights = {w.gate, w.up}, .out = gate_up});
  e.add("gate_cut", NormArgs{.x = gate, .kind = NormKind::cut, .cut = cut, .out = gate});
  const int64_t head = size % kHead == 0 ? kHead : size;
  e.add("gate_gelu", HeadGateArgs{.x = up,
                                  .gate = gate,
                                  .heads = static_cast<int32_t>(size / head),
                                  .gate_stride = head,
                                  .function = HeadGateArgs::Function::gelu_tanh,
                                  .out = hidden});
  return hidden;
}

}  // namespace

/// activation(gate(x), up(x)), or activation(up(x)): [tokens, ffn].
Tensor emit_feed_forward(Emitter& e, const Tensor& normed) {
  if (const std::optional<float> cut = e.layer_config().gate_cut)
    return emit_cut_feed_forward(e, normed, *cut);
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
