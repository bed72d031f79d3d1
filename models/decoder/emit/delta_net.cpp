#include <array>

#include "models/decoder/emit/emitter.h"

// A gated delta net (Yang et al. 2024, "Gated delta networks"):
//
//   delta_in      [q | k | v | z | beta, alpha]          one product of x
//   delta_conv    q, k, v: convolution, SiLU, L2 norms   takes and leaves the last inputs of a sequence
//   delta_rule    of each value head                     takes and leaves its matrix
//   delta_gate    norm(what that gave) silu(z)
namespace minfer {

Tensor emit_delta_net(Emitter& e, const Tensor& normed) {
  const DeltaNetWeights& w = e.layer_weights().delta;
  const DeltaNetShape& shape = e.config.delta_net;
  const RecurrentLayer state = e.state_layer();
  const std::array<Weight, 4> weights{w.qkv, w.z, w.beta, w.alpha};
  const Tensor all = e.f32(e.config.qkv_size(e.layer));  // [tokens, channels + value_columns + 2 value_heads]
  e.add("delta_in",
        LinearArgs{.x = normed, .weights = {weights.data(), w.alpha ? size_t{4} : size_t{3}}, .out = all});

  const int64_t z = shape.channels(), gates = z + shape.value_columns();
  const Tensor qkv = e.f32(shape.channels());
  e.add("delta_conv", DeltaConvArgs{.x = Emitter::columns(all, 0, shape.channels()),
                                    .shape = shape,
                                    .weight = w.conv,
                                    .state = state,
                                    .out = qkv});
  const Tensor values = e.f32(shape.value_columns());
  e.add("delta_rule", DeltaRuleArgs{.qkv = qkv,
                                    .gates = Emitter::columns(all, gates, 2 * int64_t{shape.value_heads}),
                                    .shape = shape,
                                    .dt_bias = w.dt_bias,
                                    .decay = w.decay,
                                    .state = state,
                                    .out = values});
  const Tensor out = e.activations(e.config.output_size(e.layer));  // [tokens, value_heads * value_size]
  e.add("delta_gate", HeadGateArgs{.x = values,
                                   .gate = Emitter::columns(all, z, shape.value_columns()),
                                   .heads = shape.value_heads,
                                   .gate_stride = shape.value_size,
                                   .function = HeadGateArgs::Function::silu,
                                   .norm = w.norm,
                                   .norm_eps = e.config.norm_eps,
                                   .out = out});
  return out;
}

}  // namespace minfer
