#include <algorithm>
#include <initializer_list>
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
  constexpr int32_t kOpsOfASlice = 5;  // gather_rows, output_norm, lm_head, gather_logits, sample
  return kOpsOfASlice * (std::max(limits.max_tokens - 1, 0) / limits.logit_slice);
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
  info.kv_dtype = kv_.layer(0).dtype;
  info.heads = config_.num_heads;
  info.kv_heads = config_.num_kv_heads;
  info.head_size = config_.head_size;
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
        add_all_reduce("embed_all_reduce", -1, weights_.layers.front().attn_norm, DType::f32);
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
                           {weights_.output_norm});
  lm_head_op_ = add_op({.name = "lm_head",
                        .kind = OpKind::linear,
                        .scope = TokenScope::logits,
                        .in_features = hidden,
                        .out_features = config_.vocab_size},
                       {weights_.output});
  ops_.back().out_element_bytes = kF32Bytes;
  if (!alone) {
    gather_logits_op_ = add_op({.name = "gather_logits",
                                .kind = OpKind::all_gather,
                                .scope = TokenScope::logits,
                                .in_features = config_.whole_vocab_size(),
                                .out_features = config_.whole_vocab_size()});
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
  constexpr int32_t kMostOpsOfALayer = 12, kMostOtherOps = 11;
  return {.max_tokens = limits.max_tokens,
          .max_sequences = max_sequences,
          .max_logit_rows = limits.max_tokens,
          .logit_slice = limits.logit_slice,
          .max_blocks = max_blocks,
          .max_stamps = config.num_layers * kMostOpsOfALayer + kMostOtherOps + repeated_ops(limits),
          .vocab_size = config.whole_vocab_size(),
          .hidden_size = config.hidden_size,
          .ffn_size = config.ffn_size,
          .qkv_size = config.qkv_size(),
          .heads = config.num_heads,
          .kv_heads = config.num_kv_heads,
          .head_size = config.head_size,
          .experts = config.num_experts,
          .experts_used = config.num_experts_used,
          .routed_layers = config.is_moe() ? config.num_layers : 0};
}

int64_t Decoder::workspace_bytes(const ModelConfig& config, DType activation_dtype,
                                 const DecoderLimits& limits) {
  const auto activation = static_cast<int64_t>(traits(activation_dtype).block_bytes);
  const int64_t experts_used = std::max(1, config.num_experts_used);
  const int64_t part =
      config.rank.is_alone()
          ? 0
          : static_cast<int64_t>(row_bytes(part_dtype(config, activation_dtype), config.hidden_size));
  const int64_t token = part + config.hidden_size * (kF32Bytes + activation) + config.qkv_size() * kF32Bytes +
                        (2 * config.q_size() + experts_used * config.ffn_size) * activation +
                        config.num_experts * kF32Bytes + 2 * experts_used * kF32Bytes;
  const bool alone = config.rank.is_alone();
  const int64_t logits = config.whole_vocab_size() + (alone ? 0 : config.vocab_size);
  const int64_t row = config.hidden_size * (kF32Bytes + activation) + logits * kF32Bytes;
  const int64_t position = int64_t{config.rotary_size} * kF32Bytes;
  return limits.max_tokens * token + limits.logit_slice * row + limits.max_positions * position;
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
                   .out_features = hidden},
                  {weight});
  };
  const auto product = [&](const char* op_name, OpKind kind, int64_t in, int64_t out,
                           std::initializer_list<Weight> weights, bool add_to_out = false) {
    return add_op({.name = op_name,
                   .layer = layer,
                   .kind = kind,
                   .in_features = in,
                   .out_features = out,
                   .add_to_out = add_to_out},
                  weights);
  };
  /// What the op that was added last reads and writes.
  const auto set_types = [&](DType in, DType out) {
    if (in == DType::fp8) ops_.back().in_element_bytes = 1;
    if (out == DType::fp8) ops_.back().out_element_bytes = 1;
    ops_.back().fp8_products = in == DType::fp8;
  };
  const auto attention = [&](const char* op_name, TokenScope scope) {
    return add_op({.name = op_name, .layer = layer, .kind = OpKind::attention, .scope = scope});
  };

  LayerOps ops{};
  const bool alone = config_.rank.is_alone();
  const InputTypes types = input_types(w, limits_.max_tokens);  // with one token x is too small to matter
  if (alone) ops.attn_norm = norm("attn_norm", w.attn_norm);
  set_types(activation_dtype_, types.qkv);
  ops.qkv = product("qkv", OpKind::linear, hidden, config_.qkv_size(),
                    {w.q, w.k, w.v, w.q_bias, w.k_bias, w.v_bias});
  ops_.back().out_element_bytes = kF32Bytes;
  set_types(types.qkv, activation_dtype_);
  ops.rope_kv_write = product("rope_kv_write", OpKind::rope_kv_write, config_.qkv_size(), config_.qkv_size(),
                              {w.q_norm, w.k_norm});
  ops_.back().in_element_bytes = kF32Bytes;
  ops.attention_decode = attention("attention_decode", TokenScope::decode);
  set_types(activation_dtype_, types.attn_output);
  ops.attention_prefill = attention("attention_prefill", TokenScope::prefill);
  set_types(activation_dtype_, types.attn_output);
  ops.attn_output = product("attn_output", OpKind::linear, config_.q_size(), hidden, {w.attn_output}, alone);
  set_types(types.attn_output, activation_dtype_);
  if (alone) {
    ops.ffn_norm = norm("ffn_norm", w.ffn_norm);
    set_types(activation_dtype_, types.ffn);
  } else {
    ops.attn_all_reduce =
        add_all_reduce("attn_all_reduce", layer, w.ffn_norm, part_dtype(config_, activation_dtype_));
  }
  if (config_.is_moe()) {
    ops.router = product("moe_router", OpKind::linear, hidden, config_.num_experts, {w.router});
    ops_.back().out_element_bytes = kF32Bytes;
    ops.route = product("moe_route", OpKind::moe_route, config_.num_experts, config_.num_experts_used, {});
    ops.gate_up = product("moe_gate_up_swiglu", OpKind::moe_gate_up_swiglu, hidden, ffn, {w.gate, w.up});
    ops.down = product("moe_down", OpKind::moe_down, ffn, hidden, {w.down}, alone);
  } else {
    ops.gate_up = product("gate_up_swiglu", OpKind::gate_up_swiglu, hidden, ffn, {w.gate, w.up});
    set_types(types.ffn, types.ffn);
    ops.down = product("ffn_down", OpKind::linear, ffn, hidden, {w.down}, alone);
    set_types(types.ffn, activation_dtype_);
  }
  if (!alone) {
    ops.ffn_all_reduce =
        add_all_reduce("ffn_all_reduce", layer, norm_behind(layer), part_dtype(config_, activation_dtype_));
  }
  return ops;
}

}  // namespace minfer
