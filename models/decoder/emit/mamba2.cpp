#include "models/decoder/emit/emitter.h"

// Mamba-2 (Dao & Gu 2024, "Transformers are SSMs"):
//
//   mamba_in     [z | x, B, C | dt]                        one product of the layer's input
//   mamba_conv   x, B, C: convolution, SiLU                takes and leaves the last inputs of a sequence
//   mamba_scan   h = e^(A d) h + B (d x)^T, (h^T C + D x) silu(z)   of each head, d = softplus(dt + bias); takes and leaves its h
//   mamba_norm   RMS norm of each group of heads
namespace minfer {

Tensor emit_mamba(Emitter& e, const Tensor& normed) {
  const MambaWeights& w = e.layer_weights().mamba;
  const DeltaNetShape& shape = e.config.delta_net;
  const RecurrentLayer state = e.state_layer();
  const int64_t columns = shape.value_columns(), channels = shape.channels();
  const Tensor all = e.f32(e.config.qkv_size(e.layer));  // [tokens, columns + channels + value_heads]
  e.add("mamba_in", LinearArgs{.x = normed, .weights = {&w.in, 1}, .out = all});

  const Tensor xbc = e.f32(channels), scanned = e.f32(columns), out = e.activations(columns);
  e.add("mamba_conv", DeltaConvArgs{.x = Emitter::columns(all, columns, channels),
                                    .shape = shape,
                                    .weight = w.conv,
                                    .state = state,
                                    .out = xbc,
                                    .bias = w.bias,
                                    .norms_heads = false});
  e.add("mamba_scan", MambaScanArgs{.xbc = xbc,
                                    .dt = Emitter::columns(all, columns + channels, shape.value_heads),
                                    .gate = Emitter::columns(all, 0, columns),
                                    .shape = shape,
                                    .dt_bias = w.dt_bias,
                                    .decay = w.decay,
                                    .skip = w.skip,
                                    .state = state,
                                    .out = scanned});
  e.add("mamba_norm", NormArgs{.x = Emitter::pieces(scanned, shape.key_heads),
                               .weight = w.norm,
                               .eps = e.config.norm_eps,
                               .out = Emitter::pieces(out, shape.key_heads)});
  return out;
}

}  // namespace minfer
