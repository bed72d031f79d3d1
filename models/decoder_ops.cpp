#include "models/decoder.h"

namespace minfer {
namespace {

int64_t bytes(const Weight& weight) {
  return weight ? static_cast<int64_t>(weight.matrix_bytes()) : 0;
}

}  // namespace

OpId Decoder::add_op(OpInfo info) {
  info.activation_bytes = static_cast<int32_t>(traits(activation_dtype_).block_bytes);
  info.kv_dtype = kv_.layer(0).dtype;
  info.heads = config_.num_heads;
  info.kv_heads = config_.num_kv_heads;
  info.head_size = config_.head_size;
  info.experts = config_.num_experts;
  info.experts_used = config_.num_experts_used;
  ops_.push_back(std::move(info));
  return static_cast<OpId>(ops_.size() - 1);
}

void Decoder::build_op_table() {
  const int64_t hidden = config_.hidden_size;
  embed_op_ = add_op({.name = "embed",
                      .kind = OpKind::embed,
                      .in_features = hidden,
                      .out_features = hidden,
                      .weight_bytes = static_cast<int64_t>(row_bytes(weights_.embedding.dtype, hidden))});
  for (int32_t layer = 0; layer < config_.num_layers; ++layer)
    layer_ops_.push_back(add_layer_ops(layer));
  gather_op_ = add_op({.name = "gather_rows",
                       .kind = OpKind::gather,
                       .scope = TokenScope::logits,
                       .in_features = hidden,
                       .out_features = hidden});
  output_norm_op_ = add_op({.name = "output_norm",
                            .kind = OpKind::rms_norm,
                            .scope = TokenScope::logits,
                            .in_features = hidden,
                            .out_features = hidden,
                            .weight_bytes = bytes(weights_.output_norm)});
  lm_head_op_ = add_op({.name = "lm_head",
                        .kind = OpKind::linear,
                        .scope = TokenScope::logits,
                        .in_features = hidden,
                        .out_features = config_.vocab_size,
                        .weight_bytes = bytes(weights_.output)});
  sample_op_ = add_op({.name = "sample",
                       .kind = OpKind::sample,
                       .scope = TokenScope::logits,
                       .in_features = config_.vocab_size});
}

Decoder::LayerOps Decoder::add_layer_ops(int32_t layer) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const int64_t hidden = config_.hidden_size;
  const int64_t ffn = config_.ffn_size;
  const auto norm = [&](const char* op_name, const Weight& weight) {
    return add_op({.name = op_name,
                   .layer = layer,
                   .kind = OpKind::rms_norm,
                   .in_features = hidden,
                   .out_features = hidden,
                   .weight_bytes = bytes(weight)});
  };
  const auto product = [&](const char* op_name, OpKind kind, int64_t in, int64_t out, int64_t weight_bytes,
                           bool add_to_out = false) {
    return add_op({.name = op_name,
                   .layer = layer,
                   .kind = kind,
                   .in_features = in,
                   .out_features = out,
                   .weight_bytes = weight_bytes,
                   .add_to_out = add_to_out});
  };
  const auto attention = [&](const char* op_name, TokenScope scope) {
    return add_op({.name = op_name, .layer = layer, .kind = OpKind::attention, .scope = scope});
  };

  LayerOps ops{};
  ops.attn_norm = norm("attn_norm", w.attn_norm);
  ops.qkv =
      product("qkv", OpKind::linear, hidden, config_.qkv_size(),
              bytes(w.q) + bytes(w.k) + bytes(w.v) + bytes(w.q_bias) + bytes(w.k_bias) + bytes(w.v_bias));
  ops.rope_kv_write = product("rope_kv_write", OpKind::rope_kv_write, config_.qkv_size(), config_.qkv_size(),
                              bytes(w.q_norm) + bytes(w.k_norm));
  ops.attention_decode = attention("attention_decode", TokenScope::decode);
  ops.attention_prefill = attention("attention_prefill", TokenScope::prefill);
  ops.attn_output =
      product("attn_output", OpKind::linear, config_.q_size(), hidden, bytes(w.attn_output), true);
  ops.ffn_norm = norm("ffn_norm", w.ffn_norm);
  if (config_.is_moe()) {
    ops.router = product("moe_router", OpKind::linear, hidden, config_.num_experts, bytes(w.router));
    ops.route = product("moe_route", OpKind::moe_route, config_.num_experts, config_.num_experts_used, 0);
    ops.gate_up =
        product("moe_gate_up_swiglu", OpKind::moe_gate_up_swiglu, hidden, ffn, bytes(w.gate) + bytes(w.up));
    ops.down = product("moe_down", OpKind::moe_down, ffn, hidden, bytes(w.down), true);
  } else {
    ops.gate_up = product("gate_up_swiglu", OpKind::gate_up_swiglu, hidden, ffn, bytes(w.gate) + bytes(w.up));
    ops.down = product("ffn_down", OpKind::linear, ffn, hidden, bytes(w.down), true);
  }
  return ops;
}

}  // namespace minfer
