#include <array>

#include "models/decoder/emit/emitter.h"

// Attention over keys and values of heads (Vaswani et al. 2017, "Attention is all you need"; Ainslie et al. 2023, "GQA"):
//
//   qkv             [q | k | v]              one product of x; with gates each head of q has its own behind it
//   q_norm, k_norm  norms of whole rows      in families that have those
//   rope_kv_write   norms of heads, rotation; k and v to the cache
//   attention       of decoding sequences, and of prompts
//   attention_gate  times the sigmoid of the gates
namespace minfer {
namespace {

/// Norms of the heads of q and k, which go with their rotation; null: none.
std::array<Weight, 2> head_norms(const Emitter& e) {
  const LayerWeights& w = e.layer_weights();
  const QkNorm kind = e.config.architecture.qk_norm;
  if (kind == QkNorm::head) return {w.q_norm, w.k_norm};
  if (kind != QkNorm::rotated_head || e.layer_config().rope == LayerConfig::kNoRope) return {};
  // A rotation keeps the size of a head, so that it may as well come behind the norm.
  const Weight ones = e.ones(e.config.heads(e.layer).size);
  return {ones, ones};
}

/// q and k in place, each over all its heads.
void norm_rows(Emitter& e, const Tensor& qkv) {
  const LayerWeights& w = e.layer_weights();
  const int64_t q_size = e.only_keys ? 0 : e.config.q_size(e.layer);
  const Tensor q = Emitter::columns(qkv, 0, q_size);
  const Tensor k = Emitter::columns(qkv, q_size, e.config.kv_size(e.layer));
  if (!e.only_keys) e.add("q_norm", NormArgs{.x = q, .weight = w.q_norm, .eps = e.config.norm_eps, .out = q});
  e.add("k_norm", NormArgs{.x = k, .weight = w.k_norm, .eps = e.config.norm_eps, .out = k});
}

}  // namespace

Tensor emit_attention(Emitter& e, const Tensor& normed) {
  const ModelConfig& config = e.config;
  const LayerWeights& w = e.layer_weights();
  const LayerConfig& layer = e.layer_config();
  const bool gates_heads = config.architecture.gates_heads && !e.only_keys;
  const bool has_rope = layer.rope != LayerConfig::kNoRope;
  const bool shares_kv = layer.kv_of != LayerConfig::kOwn;
  const size_t first = e.only_keys ? 1 : 0, end = shares_kv ? 1 : layer.values_are_keys ? 2 : 3;
  const std::array<Weight, 3> weights{w.q, w.k, w.v};
  const std::array<Weight, 3> biases{w.q_bias, w.k_bias, w.v_bias};
  const int32_t heads = e.only_keys ? 0 : config.num_heads;
  const int32_t columns = config.qkv_size(e.layer) - (e.only_keys ? config.gated_q_size(e.layer) : 0);

  const Tensor qkv = e.f32(columns);  // [tokens, (heads + 2 kv_heads) * head_size]
  e.add("qkv", LinearArgs{.x = normed,
                          .weights = std::span(weights).subspan(first, end - first),
                          .biases = std::span(biases).subspan(first, w.q_bias ? end - first : 0),
                          .out = qkv});
  if (config.architecture.qk_norm == QkNorm::row) norm_rows(e, qkv);

  // Queries that are f32 and stand side by side in qkv are rotated in place.
  const bool in_place = (e.activation == DType::f32 && !gates_heads) || e.only_keys;
  const Tensor q =
      in_place ? Tensor{} : e.activations(config.q_size(e.layer));  // [tokens, heads * head_size]
  const auto [q_norm, k_norm] = head_norms(e);
  KvLayer written = e.kv_layer();
  if (shares_kv) written.kv_heads = 0;  // keys and values are in the cache already
  e.add({.name = "rope_kv_write", .rotary_size = config.rotary_size_of(e.layer)},
        RopeKvWriteArgs{
            .qkv = qkv,
            .q_out = q,
            .heads = heads,
            .rotary_size = has_rope ? config.rotary_size_of(e.layer) : 0,
            .pairing = config.architecture.rope_pairing,
            .cos_sin = e.angles(),
            .q_norm = e.only_keys ? Weight{} : q_norm,
            .k_norm = k_norm,
            .layer_norms = config.architecture.norm == NormKind::layer,
            .norm_eps = config.norm_eps,
            .kv = written,
            .q_scale = layer.has_temperature ? e.memory.q_scales : nullptr,
            .v_norm = config.architecture.norms_values ? e.ones(config.value_size(e.layer)) : Weight{},
            .v_is_k = layer.values_are_keys && !shares_kv,
            .q_has_gate = gates_heads,
            .norms_last = config.architecture.norms_last});

  if (e.only_keys) return {};

  Tensor attending = in_place ? qkv : q;
  if (layer.values_are_keys || shares_kv) attending.cols = config.q_size(e.layer);
  const Tensor attended = e.activations(config.output_size(e.layer));  // [tokens, heads * head_size]
  emit_attend(e, attending, attended);
  if (gates_heads) {
    const int64_t size = config.heads(e.layer).size, gated = config.gated_q_size(e.layer);
    e.add("attention_gate", HeadGateArgs{.x = attended,
                                         .gate = Emitter::columns(qkv, size, gated - size),
                                         .heads = config.num_heads,
                                         .gate_stride = 2 * size,
                                         .function = HeadGateArgs::Function::sigmoid,
                                         .out = attended});
  }
  return attended;
}

void emit_attend(Emitter& e, const Tensor& q, const Tensor& attended) {
  const AttentionArgs args{.qkv = q,
                           .heads = e.config.num_heads,
                           .scale = e.config.heads(e.layer).scale,
                           .kv = e.kv_layer(),
                           .out = attended,
                           .window = e.window(),
                           .logit_cap = e.config.attention_cap,
                           .sinks = e.layer_weights().sinks,
                           .chosen = e.chosen,
                           .most_chosen = e.chooses_keys() ? e.config.indexer.most_chosen : 0};
  e.add({.name = "attention_decode", .scope = TokenScope::decode}, args);
  e.add({.name = "attention_prefill", .scope = TokenScope::prefill}, args);
}

}  // namespace minfer
