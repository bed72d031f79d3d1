#include "models/decoder/emit/emitter.h"

// A gated short convolution (Liquid AI 2025, "LFM2 technical report"):
//
//   conv_in      [b | c | v]                        one product of x
//   short_conv   c times the convolution of b v     takes and leaves the last of these of a sequence
namespace minfer {

Tensor emit_short_conv(Emitter& e, const Tensor& normed) {
  const ShortConvWeights& w = e.layer_weights().short_conv;
  const Tensor all = e.f32(e.config.qkv_size(e.layer));  // [tokens, 3 conv_channels]
  e.add("conv_in", LinearArgs{.x = normed,
                              .weights = {&w.in, 1},
                              .biases = {&w.in_bias, w.in_bias ? size_t{1} : size_t{0}},
                              .out = all});
  const Tensor out = e.activations(e.config.conv_channels);
  e.add("short_conv",
        ShortConvArgs{.x = all, .weight = w.conv, .bias = w.bias, .state = e.state_layer(), .out = out});
  return out;
}

}  // namespace minfer
