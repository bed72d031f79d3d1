#include <array>

#include "models/decoder/emit/emitter.h"

// Kimi delta attention (Kimi Team 2025, "Kimi Linear", arXiv:2510.26692): a gated delta net whose states have a decay for each row. The
// numbers that make the decays, and the gates of the result, are products of a small vector each.
//
//   delta_in      [q | k | v | f, g | beta]              one product of x
//   delta_low     f, g                                   in the type of activations
//   delta_alpha   alphas of all rows of all heads        a product of f
//   delta_z       gates of all heads                     a product of g
//   delta_conv, delta_rule                               as in delta_net.cpp
//   delta_gate    norm(what that gave) sigmoid(z)
namespace minfer {

Tensor emit_kimi_delta(Emitter& e, const Tensor& normed) {
  const DeltaNetWeights& w = e.layer_weights().delta;
  const LayerWeights& of_layer = e.layer_weights();
  const DeltaNetShape& shape = e.config.delta_net;
  const RecurrentLayer state = e.state_layer();
  const int64_t channels = shape.channels(), rank = e.config.gate_rank(), low_size = 2 * rank;
  const std::array<Weight, 6> weights{of_layer.q, of_layer.k, of_layer.v, w.alpha_in, w.z_in, w.beta};
  const Tensor all = e.f32(e.config.qkv_size(e.layer));  // [tokens, channels + 2 rank + value_heads]
  e.add("delta_in", LinearArgs{.x = normed, .weights = weights, .out = all});

  const Tensor low = e.activations(low_size);
  const Tensor alphas = e.f32(shape.alphas()), z = e.f32(shape.value_columns());
  e.add("delta_low",
        NormArgs{.x = Emitter::columns(all, channels, low_size), .kind = NormKind::none, .out = low});
  e.add("delta_alpha",
        LinearArgs{.x = Emitter::columns(low, 0, rank), .weights = {&w.alpha, 1}, .out = alphas});
  e.add("delta_z", LinearArgs{.x = Emitter::columns(low, rank, rank), .weights = {&w.z, 1}, .out = z});

  const Tensor qkv = e.f32(channels), values = e.f32(shape.value_columns());
  e.add("delta_conv", DeltaConvArgs{.x = Emitter::columns(all, 0, channels),
                                    .shape = shape,
                                    .weight = w.conv,
                                    .state = state,
                                    .out = qkv});
  e.add("delta_rule", DeltaRuleArgs{.qkv = qkv,
                                    .gates = Emitter::columns(all, channels + low_size, shape.value_heads),
                                    .shape = shape,
                                    .dt_bias = w.dt_bias,
                                    .decay = w.decay,
                                    .state = state,
                                    .out = values,
                                    .alphas = alphas});
  const Tensor out = e.activations(e.config.output_size(e.layer));  // [tokens, value_heads * value_size]
  e.add("delta_gate", HeadGateArgs{.x = values,
                                   .gate = z,
                                   .heads = shape.value_heads,
                                   .gate_stride = shape.value_size,
                                   .function = HeadGateArgs::Function::sigmoid,
                                   .norm = w.norm,
                                   .norm_eps = e.config.norm_eps,
                                   .out = out});
  return out;
}

}  // namespace minfer
