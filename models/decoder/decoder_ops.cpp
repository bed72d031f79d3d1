#include <algorithm>
#include <initializer_list>
#include <tuple>
#include <utility>

#include "kernels/work.h"
#include "models/decoder/decoder.h"

namespace minfer {
namespace {

/// One row of a table.
Weight row_of(Weight table) {
  table.rows = 1;
  return table;
}

constexpr int32_t kF32Bytes = 4;

/// Runs of ops beyond the first, when all tokens of a step want logits.
int32_t repeated_ops(const DecoderLimits& limits) {
  constexpr int32_t kOpsOfASlice = 6;  // gather_rows, output_norm, lm_head, logit_cap, gather_logits, sample
  return kOpsOfASlice * (std::max(limits.max_tokens - 1, 0) / limits.logit_slice);
}

/// Of a token, beside what any attention needs.
int64_t latent_bytes(const ModelConfig& config, int64_t activation) {
  if (!config.is_latent()) return 0;
  const LatentAttention& latent = config.latent;
  const int64_t q = latent.q_rank > 0 ? int64_t{config.num_heads} * latent.key_size * kF32Bytes : 0;
  return q + (latent.q_rank + config.output_size()) * activation;
}

/// The residual stream, router logits and logits are f32 whatever the type of activations.
bool reads_f32(OpKind kind) {
  return kind == OpKind::rms_norm || kind == OpKind::gather || kind == OpKind::sample ||
         kind == OpKind::moe_route;
}
bool writes_f32(const OpInfo& info) {
  return info.kind == OpKind::embed || info.kind == OpKind::gather || info.kind == OpKind::moe_down ||
         (info.add_to_out && info.kind != OpKind::all_reduce);
}

}  // namespace

OpId Decoder::add_op(OpInfo info, std::initializer_list<Weight> weights) {
  set_weights(info, {weights.begin(), weights.size()});
  const auto activation_bytes = static_cast<int32_t>(traits(activation_dtype_).block_bytes);
  info.in_element_bytes = reads_f32(info.kind) ? kF32Bytes : activation_bytes;
  info.out_element_bytes = writes_f32(info) ? kF32Bytes : activation_bytes;
  const KvLayer& kv = kv_.layer(std::max(0, info.layer));
  info.kv_dtype = kv.dtype;
  info.heads = config_.num_heads;
  info.kv_heads = kv.kv_heads;
  info.head_size = kv.head_size;
  info.v_head_size = kv.value_size();
  info.v_in_k = config_.is_latent();
  info.ranks = config_.rank.count;
  info.experts = config_.num_experts;
  info.experts_used = config_.num_experts_used;
  ops_.push_back(std::move(info));
  return static_cast<OpId>(ops_.size() - 1);
}

void Decoder::build_op_table() {
  const int64_t hidden = config_.hidden_size;
  inputs_op_ = add_op({.name = "step_inputs", .kind = OpKind::transfer});
  embed_op_ = add_op({.name = "embed", .kind = OpKind::embed, .in_features = hidden, .out_features = hidden},
                     {row_of(weights_.embedding)});
  const bool alone = config_.rank.is_alone();
  if (!alone) {
    embed_all_reduce_op_ =
        add_all_reduce("embed_all_reduce", -1,
                       norms_in_all_reduce() ? weights_.layers.front().attn_norm : Weight{}, DType::f32);
    ops_.back().add_to_out = false;
  }
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
                            .out_features = hidden},
                           {weights_.output_norm, weights_.output_norm_bias});
  lm_head_op_ = add_op({.name = "lm_head",
                        .kind = OpKind::linear,
                        .scope = TokenScope::logits,
                        .in_features = hidden,
                        .out_features = config_.vocab_size},
                       {weights_.output});
  ops_.back().out_element_bytes = kF32Bytes;
  if (config_.logit_cap > 0.0f) {
    logit_cap_op_ = add_op({.name = "logit_cap",
                            .kind = OpKind::activate,
                            .scope = TokenScope::logits,
                            .in_features = config_.vocab_size,
                            .out_features = config_.vocab_size});
    ops_.back().in_element_bytes = ops_.back().out_element_bytes = kF32Bytes;
  }
  if (!alone) {
    gather_logits_op_ = add_op({.name = "gather_logits",
                                .kind = OpKind::all_gather,
                                .scope = TokenScope::logits,
                                .in_features = config_.vocab_share() * config_.rank.count,
                                .out_features = config_.vocab_share() * config_.rank.count});
    ops_.back().in_element_bytes = ops_.back().out_element_bytes = kF32Bytes;
  }
  sample_op_ = add_op({.name = "sample",
                       .kind = OpKind::sample,
                       .scope = TokenScope::logits,
                       .in_features = config_.whole_vocab_size()});
  if (!alone)
    share_op_ = add_op({.name = "share_tokens", .kind = OpKind::broadcast, .scope = TokenScope::logits});
  results_op_ = add_op({.name = "step_results", .kind = OpKind::transfer, .scope = TokenScope::logits});
}

OpId Decoder::add_all_reduce(const char* op_name, int32_t layer, const Weight& norm, DType part) {
  const OpId op = add_op({.name = op_name,
                          .layer = layer,
                          .kind = OpKind::all_reduce,
                          .in_features = config_.hidden_size,
                          .out_features = config_.hidden_size,
                          .add_to_out = true},
                         {norm});
  ops_.back().in_element_bytes = static_cast<int32_t>(traits(part).block_bytes);
  return op;
}

size_t Decoder::max_op_runs() const {
  return ops_.size() + static_cast<size_t>(repeated_ops(limits_));
}

StepLimits Decoder::step_limits(const ModelConfig& config, const DecoderLimits& limits, int32_t max_sequences,
                                int32_t max_blocks) {
  constexpr int32_t kMostOpsOfALayer = sizeof(LayerOps) / sizeof(TableOp), kMostOtherOps = 12;
  return {.max_tokens = limits.max_tokens,
          .max_sequences = max_sequences,
          .max_logit_rows = limits.max_tokens,
          .logit_slice = limits.logit_slice,
          .max_blocks = max_blocks,
          .max_stamps = config.num_layers * kMostOpsOfALayer + kMostOtherOps + repeated_ops(limits),
          .vocab_size = config.whole_vocab_size(),
          .hidden_size = std::max(config.hidden_size, config.latent.q_rank),
          .ffn_size = config.max_ffn_size(),
          .qkv_size = config.qkv_size(),
          .heads = config.num_heads,
          .head_size = (config.output_size() + config.num_heads - 1) / config.num_heads,
          .latent_row = config.is_latent() ? config.head_size : 0,
          .experts = config.num_experts,
          .experts_used = config.num_experts_used,
          .routed_layers = config.num_expert_layers(),
          .attention_kinds = attention_kinds_of(config, limits.max_positions),
          .has_states = config.has_states()};
}

int64_t Decoder::workspace_bytes(const ModelConfig& config, DType activation_dtype,
                                 const DecoderLimits& limits) {
  const auto activation = static_cast<int64_t>(traits(activation_dtype).block_bytes);
  const int64_t experts_used = std::max(1, config.num_experts_used);
  const int64_t part =
      config.rank.is_alone()
          ? 0
          : static_cast<int64_t>(row_bytes(part_dtype(config, activation_dtype), config.hidden_size));
  const int64_t block_out = config.adds_products() ? 0 : config.hidden_size * kF32Bytes;
  const int64_t token = part + block_out + config.hidden_size * (kF32Bytes + activation) +
                        config.qkv_size() * kF32Bytes +
                        (config.q_size() + config.attended_size() + ffn_elements(config)) * activation +
                        latent_bytes(config, activation) + delta_bytes(config) +
                        config.num_experts * kF32Bytes + 2 * experts_used * kF32Bytes;
  const int64_t parts = config.rank.is_alone() ? 1 : config.rank.count + 1;
  const int64_t logits = parts * config.vocab_share();
  const int64_t row = config.hidden_size * (kF32Bytes + activation) + logits * kF32Bytes;
  const int64_t q_scale = config.temperature.scale > 0.0f ? kF32Bytes : 0;
  int64_t position = q_scale;
  for (const RopeConfig& rope : config.ropes)
    position += config.rotary_size_of(rope) * kF32Bytes;
  const int64_t ones = num_ones(config, limits.max_tokens) * kF32Bytes;
  return limits.max_tokens * token + limits.logit_slice * row + limits.max_positions * position + ones;
}

Decoder::LayerOps Decoder::add_layer_ops(int32_t layer) {
  LayerOps ops;
  const InputTypes types = input_types(layer, limits_.max_tokens);  // one token's x is too small to matter
  add_attention_ops(layer, types, ops);
  config_.layer(layer).has_experts ? add_expert_ops(layer, ops) : add_ffn_ops(layer, types, ops);
  if (weights_.layers[static_cast<size_t>(layer)].output_scale != 1.0f) {
    ops.scale = add_norm_op("layer_scale", layer, config_.hidden_size, {}, DType::f32);
    ops_.back().out_element_bytes = kF32Bytes;
  }
  return ops;
}

OpId Decoder::add_norm_op(const char* op_name, int32_t layer, int64_t size,
                          std::initializer_list<Weight> weights, DType out) {
  const OpId op = add_op(
      {.name = op_name, .layer = layer, .kind = OpKind::rms_norm, .in_features = size, .out_features = size},
      weights);
  if (out == DType::fp8) ops_.back().out_element_bytes = 1;
  return op;
}

OpId Decoder::add_product_op(OpInfo info, std::initializer_list<Weight> weights, DType in, DType out) {
  const OpId op = add_op(std::move(info), weights);
  if (in == DType::fp8) ops_.back().in_element_bytes = 1;
  if (out == DType::fp8) ops_.back().out_element_bytes = 1;
  ops_.back().fp8_products = in == DType::fp8;
  return op;
}

Decoder::BlockEnd Decoder::add_end_ops(const char* all_reduce, const char* add, int32_t layer,
                                       const Weight& post_norm, const Weight& next_norm) {
  BlockEnd end{{}, {}, post_norm, norms_in_all_reduce() ? next_norm : Weight{}};
  const bool adds_products = config_.adds_products();
  if (!config_.rank.is_alone()) {
    end.all_reduce = add_all_reduce(all_reduce, layer, end.next_norm, part_dtype(config_, activation_dtype_));
    ops_.back().add_to_out = adds_products;
  }
  if (adds_products) return end;
  end.add = add_norm_op(add, layer, config_.hidden_size, {post_norm}, DType::f32);
  ops_.back().add_to_out = true;
  ops_.back().out_element_bytes = kF32Bytes;
  return end;
}

void Decoder::add_attention_ops(int32_t layer, const InputTypes& types, LayerOps& ops) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  if (!norms_in_all_reduce())
    ops.attn_norm =
        add_norm_op("attn_norm", layer, config_.hidden_size, {w.attn_norm, w.attn_norm_bias}, types.qkv);
  if (config_.is_delta_net(layer)) {
    add_delta_ops(layer, types, ops);
    return add_attention_end_ops(layer, types, "delta_out", ops);
  }
  config_.is_latent() ? add_latent_ops(layer, types, ops) : add_qkv_ops(layer, types, ops);
  const auto attention = [&](const char* op_name, TokenScope scope) {
    const OpId op = add_op({.name = op_name,
                            .layer = layer,
                            .kind = OpKind::attention,
                            .scope = scope,
                            .window = window_of(layer)});
    if (types.attn_output == DType::fp8) ops_.back().out_element_bytes = 1;
    return op;
  };
  ops.attention_decode = attention("attention_decode", TokenScope::decode);
  ops.attention_prefill = attention("attention_prefill", TokenScope::prefill);
  if (config_.is_latent())
    ops.v_b = add_head_product("attn_v_b", layer, config_.latent.kv_rank, config_.latent.value_size, w.v_b);
  if (config_.architecture.gates_heads)
    ops.head_gate = add_head_gate_op("attention_gate", layer, {}, types.attn_output, types.attn_output);
  add_attention_end_ops(layer, types, "attn_output", ops);
}

void Decoder::add_attention_end_ops(int32_t layer, const InputTypes& types, const char* product,
                                    LayerOps& ops) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  ops.attn_output = add_block_product(product, layer, config_.output_size(layer),
                                      {w.attn_output, w.attn_output_bias}, types.attn_output);
  const BlockEnd end = add_end_ops("attn_all_reduce", "attn_post_norm", layer, w.attn_post_norm, w.ffn_norm);
  ops.attn_all_reduce = end.all_reduce;
  ops.attn_add = end.add;
}

void Decoder::add_qkv_ops(int32_t layer, const InputTypes& types, LayerOps& ops) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const int64_t hidden = config_.hidden_size;
  const bool norms_rows = config_.architecture.qk_norm == QkNorm::row;
  ops.qkv = add_product_op(
      {.name = "qkv", .layer = layer, .in_features = hidden, .out_features = config_.qkv_size(layer)},
      {w.q, w.k, w.v, w.q_bias, w.k_bias, w.v_bias}, types.qkv, activation_dtype_);
  ops_.back().out_element_bytes = kF32Bytes;
  if (norms_rows) {
    for (const auto& [op, name, size, weight] :
         {std::tuple(&ops.q_norm, "q_norm", config_.q_size(layer), w.q_norm),
          std::tuple(&ops.k_norm, "k_norm", config_.kv_size(layer), w.k_norm)}) {
      *op = add_norm_op(name, layer, size, {weight}, DType::f32);
      ops_.back().out_element_bytes = kF32Bytes;
    }
  }
  const auto [q_norm, k_norm] = head_norms(layer);
  ops.rope_kv_write = add_op({.name = "rope_kv_write",
                              .layer = layer,
                              .kind = OpKind::rope_kv_write,
                              .in_features = config_.qkv_size(layer),
                              .out_features = config_.qkv_size(layer),
                              .rotary_size = config_.rotary_size_of(layer)},
                             {q_norm, k_norm, value_norm(layer)});
  ops_.back().in_element_bytes = kF32Bytes;
  ops_.back().v_is_k = config_.values_are_keys(layer);
}

OpId Decoder::add_block_product(const char* op_name, int32_t layer, int64_t in,
                                std::initializer_list<Weight> weights, DType in_type) {
  const bool adds = config_.rank.is_alone() && config_.adds_products();
  const OpId op = add_product_op({.name = op_name,
                                  .layer = layer,
                                  .in_features = in,
                                  .out_features = config_.hidden_size,
                                  .add_to_out = adds},
                                 weights, in_type, activation_dtype_);
  if (config_.rank.is_alone()) ops_.back().out_element_bytes = kF32Bytes;
  return op;
}

void Decoder::add_ffn_norm_op(int32_t layer, DType out, LayerOps& ops) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  if (norms_in_all_reduce() || config_.parallel_blocks) return;
  ops.ffn_norm = add_norm_op("ffn_norm", layer, config_.hidden_size, {w.ffn_norm, w.ffn_norm_bias}, out);
}

void Decoder::add_ffn_end_ops(int32_t layer, LayerOps& ops) {
  const auto next = static_cast<size_t>(layer) + 1;
  const BlockEnd end = add_end_ops(
      "ffn_all_reduce", "ffn_post_norm", layer, weights_.layers[static_cast<size_t>(layer)].ffn_post_norm,
      next < weights_.layers.size() ? weights_.layers[next].attn_norm : Weight{});
  ops.ffn_all_reduce = end.all_reduce;
  ops.ffn_add = end.add;
}

void Decoder::add_ffn_ops(int32_t layer, const InputTypes& types, LayerOps& ops) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const int64_t hidden = config_.hidden_size, ffn = config_.ffn_size;
  add_ffn_norm_op(layer, types.ffn, ops);
  if (config_.architecture.has_gate) {
    ops.gate_up = add_product_op({.name = "gate_up_swiglu",
                                  .layer = layer,
                                  .kind = OpKind::gate_up_swiglu,
                                  .in_features = hidden,
                                  .out_features = ffn},
                                 {w.gate, w.up, w.gate_bias, w.up_bias}, types.ffn, types.ffn);
  } else {
    ops.gate_up =
        add_product_op({.name = "ffn_up", .layer = layer, .in_features = hidden, .out_features = ffn},
                       {w.up, w.up_bias}, types.ffn, types.ffn);
    ops.activate = add_op({.name = "ffn_activate",
                           .layer = layer,
                           .kind = OpKind::activate,
                           .in_features = ffn,
                           .out_features = ffn});
  }
  ops.down = add_block_product("ffn_down", layer, ffn, {w.down, w.down_bias}, types.ffn);
  add_ffn_end_ops(layer, ops);
}

void Decoder::add_expert_ops(int32_t layer, LayerOps& ops) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const int64_t hidden = config_.hidden_size, ffn = config_.expert_ffn_size;
  const auto add = [&](const char* op_name, OpKind kind, int64_t in, int64_t out,
                       std::initializer_list<Weight> weights) {
    return add_op({.name = op_name, .layer = layer, .kind = kind, .in_features = in, .out_features = out},
                  weights);
  };
  add_ffn_norm_op(layer, activation_dtype_, ops);
  ops.router = add("moe_router", OpKind::linear, hidden, config_.num_experts, {w.router, w.router_bias});
  ops_.back().out_element_bytes = kF32Bytes;
  ops.route =
      add("moe_route", OpKind::moe_route, config_.num_experts, config_.num_experts_used, {w.choice_bias});
  ops.gate_up = add("moe_gate_up_swiglu", OpKind::moe_gate_up_swiglu, hidden, ffn,
                    {w.gate, w.up, row_of(w.gate_bias), row_of(w.up_bias)});
  ops.down = add("moe_down", OpKind::moe_down, ffn, hidden, {w.down, row_of(w.down_bias)});
  ops_.back().add_to_out = config_.rank.is_alone() && config_.adds_products();
  if (w.shared_up) add_shared_expert_ops(layer, ops);
  add_ffn_end_ops(layer, ops);
}

void Decoder::add_shared_expert_ops(int32_t layer, LayerOps& ops) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const int64_t hidden = config_.hidden_size, ffn = config_.shared_ffn_size;
  const auto add = [&](const char* op_name, OpKind kind, int64_t in, int64_t out,
                       std::initializer_list<Weight> weights) {
    const OpId op = add_op(
        {.name = op_name, .layer = layer, .kind = kind, .in_features = in, .out_features = out}, weights);
    ops_.back().experts = ops_.back().experts_used = 1;
    return op;
  };
  ops.shared_gate_up =
      add("shared_gate_up_swiglu", OpKind::gate_up_swiglu, hidden, ffn, {w.shared_gate, w.shared_up});
  if (w.shared_weight) {
    ops.shared_router = add("shared_router", OpKind::linear, hidden, 1, {w.shared_weight});
    ops_.back().out_element_bytes = kF32Bytes;
    ops.shared_route = add("shared_route", OpKind::moe_route, 1, 1, {});
  }
  ops.shared_down =
      add("shared_down", w.shared_weight ? OpKind::moe_down : OpKind::linear, ffn, hidden, {w.shared_down});
  ops_.back().add_to_out = true;
  ops_.back().out_element_bytes = kF32Bytes;
}

}  // namespace minfer
