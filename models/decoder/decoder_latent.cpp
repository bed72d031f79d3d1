#include <array>

#include "models/decoder/decoder.h"

// Latent attention: its ops, and how they run.
//
//   qkv               [q or its rank | latent | rotated key]      one product of x
//   q_a_norm, q_b     q of all heads                              of queries with a rank
//   latent_kv_write   norm and rotation; the row of the cache, and the rotated elements of q in place
//   attn_k_b          of each head: the other elements of q times the keys' weights, to the latent's size
//   attention         of all query heads over the one row a token
//   attn_v_b          of each head: what it gives times the values' weights
namespace minfer {

Tensor Decoder::latent_queries(int32_t layer, const Tensor& qkv) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const Tensor first = f32_columns(qkv, 0, qkv.cols - config_.head_size);
  if (!w.q_a) return first;
  const Tensor normed =
      workspace(latent_q_in_, qkv.rows, config_.latent.q_rank, input_dtype({w.q}, qkv.rows));
  const Tensor q = f32_workspace(latent_q_, qkv.rows, int64_t{config_.num_heads} * config_.latent.key_size);
  backend_.norm(ops.q_a_norm, {.x = first, .weight = w.q_a_norm, .eps = config_.norm_eps, .out = normed});
  backend_.linear(ops.q_b, {.x = normed, .weights = {&w.q, 1}, .out = q});
  return q;
}

void Decoder::attend_latent(const ForwardBatch& batch, int32_t layer, const BlockIn& in,
                            const Tensor& values) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const Tensor qkv = f32_workspace(qkv_, values.rows, config_.qkv_size(layer));
  const std::array<Weight, 2> weights{w.q_a ? w.q_a : w.q, w.kv_a};
  backend_.linear(ops.qkv, {.x = in.x, .weights = weights, .out = qkv, .norm = in.norm});

  const Tensor q = latent_queries(layer, qkv);
  const Tensor attending = workspace(q_, qkv.rows, config_.q_size(layer));
  const Buffer& angles = rope_tables_[static_cast<size_t>(config_.layer(layer).rope)];
  backend_.latent_kv_write(ops.rope_kv_write, batch,
                           {.q = q,
                            .kv = f32_columns(qkv, qkv.cols - config_.head_size, config_.head_size),
                            .q_out = attending,
                            .heads = config_.num_heads,
                            .rotary_size = config_.rotary_size,
                            .pairing = config_.architecture.rope_pairing,
                            .cos_sin = static_cast<const float*>(angles.data()),
                            .kv_norm = w.kv_a_norm,
                            .norm_eps = config_.norm_eps,
                            .kv_layer = kv_.layer(layer)});
  backend_.head_linear(ops.k_b, {.x = q, .weight = w.k_b, .out = attending});
  const Tensor attended = workspace(attention_, qkv.rows, config_.attended_size(layer));
  attend(batch, layer, attending, attended);
  backend_.head_linear(ops.v_b, {.x = attended, .weight = w.v_b, .out = values});
}

OpId Decoder::add_head_product(const char* op_name, int32_t layer, int64_t in, int64_t out,
                               const Weight& weight) {
  const int64_t heads = config_.num_heads;
  return add_op({.name = op_name,
                 .layer = layer,
                 .kind = OpKind::head_linear,
                 .in_features = heads * in,
                 .out_features = heads * out},
                {weight});
}

void Decoder::add_latent_ops(int32_t layer, const InputTypes& types, LayerOps& ops) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LatentAttention& latent = config_.latent;
  ops.qkv = add_product_op({.name = "qkv",
                            .layer = layer,
                            .in_features = config_.hidden_size,
                            .out_features = config_.qkv_size(layer)},
                           {w.q_a ? w.q_a : w.q, w.kv_a}, types.qkv, activation_dtype_);
  ops_.back().out_element_bytes = sizeof(float);
  if (w.q_a) {
    const DType in = input_dtype({w.q}, limits_.max_tokens);
    ops.q_a_norm = add_norm_op("q_a_norm", layer, latent.q_rank, {w.q_a_norm}, in);
    ops.q_b = add_product_op({.name = "q_b",
                              .layer = layer,
                              .in_features = latent.q_rank,
                              .out_features = int64_t{config_.num_heads} * latent.key_size},
                             {w.q}, in, activation_dtype_);
    ops_.back().out_element_bytes = sizeof(float);
  }
  ops.rope_kv_write = add_op({.name = "latent_kv_write",
                              .layer = layer,
                              .kind = OpKind::latent_kv_write,
                              .in_features = config_.head_size,
                              .out_features = config_.head_size,
                              .rotary_size = config_.rotary_size},
                             {w.kv_a_norm});
  ops_.back().in_element_bytes = sizeof(float);
  ops.k_b = add_head_product("attn_k_b", layer, latent.key_size - config_.rotary_size, latent.kv_rank, w.k_b);
  ops_.back().in_element_bytes = sizeof(float);
}

}  // namespace minfer
