#include <cmath>

#include "models/decoder/emit/emitter.h"

// Inputs of single layers (Gemma 3n; Gemma 4 E2B and E4B): each layer adds something of the token itself to the residual stream.
//
//   inputs = (norm(x W / sqrt(hidden)) + table[token] sqrt(size)) / sqrt(2)   [tokens, layers * size], from the embedding x
//   x     += norm((gelu(x G) * inputs of the layer) P)                        behind each layer's blocks; Gemma 3n: the other streams
namespace minfer {

Tensor emit_layer_inputs(Emitter& e, const Tensor& x) {
  const ModelConfig& config = e.config;
  const int64_t cols = int64_t{config.num_layers} * config.layer_input_size;
  const Tensor inputs = e.f32(cols), projected = e.f32(cols);
  e.add("layer_embed", EmbedArgs{.table = e.weights.layer_embedding,
                                 .vocab_size = config.whole_vocab_size(),
                                 .scale = std::sqrt(0.5f * static_cast<float>(config.layer_input_size)),
                                 .out = inputs});
  e.add("layer_project", LinearArgs{.x = e.norm("layer_project_input", x, {}, {}),
                                    .weights = {&e.weights.layer_projection, 1},
                                    .out = projected});
  // The scale 1 / sqrt(hidden) in front of the norm matters beside its epsilon alone.
  e.add("layer_input_norm", NormArgs{.x = Emitter::pieces(projected, config.num_layers),
                                     .weight = e.weights.layer_input_norm,
                                     .eps = config.norm_eps * static_cast<float>(config.hidden_size),
                                     .scale = std::sqrt(0.5f),
                                     .add_to_out = true,
                                     .out = Emitter::pieces(inputs, config.num_layers)});
  return inputs;
}

void emit_layer_input(Emitter& e, const Tensor& x, const Tensor& inputs, const Tensor& streams) {
  const LayerWeights& w = e.layer_weights();
  const int64_t size = e.config.layer_input_size;
  const Tensor gate = e.f32(size), gated = e.activations(size), out = e.f32(x.cols);
  e.add("layer_gate",
        LinearArgs{.x = e.norm("layer_gate_input", x, {}, {}), .weights = {&w.input_gate, 1}, .out = gate});
  e.add("layer_input", HeadGateArgs{.x = Emitter::columns(inputs, e.layer * size, size),
                                    .gate = gate,
                                    .heads = 1,
                                    .gate_stride = size,
                                    .function = HeadGateArgs::Function::gelu_tanh,
                                    .out = gated});
  e.add("layer_output", LinearArgs{.x = gated, .weights = {&w.input_output, 1}, .out = out});
  if (streams.cols == 0) return e.add_normed("layer_post_norm", out, w.input_post_norm, x);
  for (int64_t first = x.cols; first < streams.cols; first += x.cols)
    e.add_normed("layer_post_norm", out, w.input_post_norm, Emitter::columns(streams, first, x.cols));
}

}  // namespace minfer
