#include <array>

#include "models/decoder/decoder.h"

// Gated delta nets, and gates of heads: their ops, and how they run.
//
//   delta_in      [q | k | v | z | beta, alpha]          one product of x
//   delta_conv    q, k, v: convolution, SiLU, L2 norms   takes and leaves the last inputs of a sequence
//   delta_rule    of each value head                     takes and leaves its matrix
//   delta_gate    norm(what that gave) silu(z)
//   delta_out     the product that ends the block
namespace minfer {
namespace {

constexpr int32_t kFloatBytes = sizeof(float);

}  // namespace

void Decoder::run_delta_net(const ForwardBatch& batch, int32_t layer, const BlockIn& in, const Tensor& out) {
  const DeltaNetWeights& w = weights_.layers[static_cast<size_t>(layer)].delta;
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const DeltaNetShape& shape = config_.delta_net;
  const StateLayer& state = states_.layer(layer);
  const Tensor all = f32_workspace(qkv_, out.rows, config_.qkv_size(layer));
  const std::array<Weight, 4> weights{w.qkv, w.z, w.beta, w.alpha};
  backend_.linear(
      ops.qkv,
      {.x = in.x, .weights = std::span(weights).first(w.alpha ? 4 : 3), .out = all, .norm = in.norm});
  const Tensor qkv = f32_workspace(delta_qkv_, out.rows, shape.channels());
  backend_.delta_conv(ops.delta_conv, batch,
                      {.x = f32_columns(all, 0, shape.channels()),
                       .shape = shape,
                       .weight = w.conv,
                       .state = state,
                       .out = qkv});
  const Tensor values = f32_workspace(delta_values_, out.rows, shape.value_columns());
  const int64_t z = shape.channels(), gates = z + shape.value_columns();
  backend_.delta_rule(ops.delta_rule, batch,
                      {.qkv = qkv,
                       .gates = f32_columns(all, gates, 2 * int64_t{shape.value_heads}),
                       .shape = shape,
                       .dt_bias = w.dt_bias,
                       .decay = w.decay,
                       .state = state,
                       .out = values});
  backend_.head_gate(ops.head_gate, {.x = values,
                                     .gate = f32_columns(all, z, shape.value_columns()),
                                     .heads = shape.value_heads,
                                     .gate_stride = shape.value_size,
                                     .function = HeadGateArgs::Function::silu,
                                     .norm = w.norm,
                                     .norm_eps = config_.norm_eps,
                                     .out = out});
}

void Decoder::gate_heads(int32_t layer, const Tensor& qkv, const Tensor& attended) {
  const int64_t size = config_.heads(layer).size;
  const int64_t gated = 2 * int64_t{config_.q_size(layer)};
  backend_.head_gate(layer_ops_[static_cast<size_t>(layer)].head_gate,
                     {.x = attended,
                      .gate = f32_columns(qkv, size, gated - size),
                      .heads = config_.num_heads,
                      .gate_stride = 2 * size,
                      .function = HeadGateArgs::Function::sigmoid,
                      .out = attended});
}

OpId Decoder::add_head_gate_op(const char* op_name, int32_t layer, const Weight& norm, DType in, DType out) {
  const OpId op = add_op({.name = op_name,
                          .layer = layer,
                          .kind = OpKind::head_gate,
                          .in_features = config_.output_size(layer),
                          .out_features = config_.output_size(layer)},
                         {norm});
  if (in == DType::f32) ops_.back().in_element_bytes = kFloatBytes;
  if (out == DType::fp8) ops_.back().out_element_bytes = 1;
  return op;
}

void Decoder::add_delta_ops(int32_t layer, const InputTypes& types, LayerOps& ops) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const DeltaNetShape& shape = config_.delta_net;
  ops.qkv =
      add_product_op({.name = "delta_in",
                      .layer = layer,
                      .in_features = config_.hidden_size,
                      .out_features = config_.qkv_size(layer)},
                     {w.delta.qkv, w.delta.z, w.delta.beta, w.delta.alpha}, types.qkv, activation_dtype_);
  ops_.back().out_element_bytes = kFloatBytes;
  ops.delta_conv = add_op({.name = "delta_conv",
                           .layer = layer,
                           .kind = OpKind::delta_conv,
                           .in_features = shape.channels(),
                           .out_features = shape.channels(),
                           .delta_net = shape},
                          {w.delta.conv});
  ops_.back().in_element_bytes = ops_.back().out_element_bytes = kFloatBytes;
  ops.delta_rule = add_op({.name = "delta_rule",
                           .layer = layer,
                           .kind = OpKind::delta_rule,
                           .in_features = shape.channels(),
                           .out_features = shape.value_columns(),
                           .delta_net = shape},
                          {w.delta.dt_bias, w.delta.decay});
  ops_.back().in_element_bytes = ops_.back().out_element_bytes = kFloatBytes;
  ops.head_gate = add_head_gate_op("delta_gate", layer, w.delta.norm, DType::f32, types.attn_output);
}

int64_t Decoder::delta_bytes(const ModelConfig& config) {
  if (!config.has_states()) return 0;
  return int64_t{config.delta_net.channels() + config.delta_net.value_columns()} * kFloatBytes;
}

}  // namespace minfer
