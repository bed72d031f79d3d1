#include <array>

#include "models/decoder/emit/emitter.h"

// Latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1), with the products of keys and values absorbed into queries and output:
//
//   qkv               [q or its rank | latent | rotated key]      one product of x
//   q_a_norm, q_b     q of all heads                              of queries with a rank
//   indexer           the keys that queries see, if a layer chooses them (indexer.cpp)
//   latent_kv_write   norm, and rotation in layers with positions; the row of the cache, and the rotated elements of q in place
//   attn_k_b          of each head: the other elements of q times the keys' weights, to the latent's size
//   attention         of all query heads over the one row a token
//   attn_v_b          of each head: what it gives times the values' weights
namespace minfer {
namespace {

/// [tokens, heads * key_size] f32, from qkv's first columns. `x`: the block's input.
Tensor emit_queries(Emitter& e, const Tensor& x, const Tensor& qkv) {
  const LayerWeights& w = e.layer_weights();
  const Tensor first = Emitter::columns(qkv, 0, qkv.cols - e.config.head_size);
  if (!w.q_a) return first;
  const Tensor normed = e.activations(e.config.latent.q_rank);
  const Tensor q = e.f32(int64_t{e.config.num_heads} * e.config.latent.key_size);
  e.add("q_a_norm", NormArgs{.x = first, .weight = w.q_a_norm, .eps = e.config.norm_eps, .out = normed});
  e.add("q_b", LinearArgs{.x = normed, .weights = {&w.q, 1}, .out = q});
  if (e.config.has_indexer(e.layer)) emit_indexer(e, x, normed);
  return q;
}

}  // namespace

Tensor emit_latent_attention(Emitter& e, const Tensor& normed) {
  const ModelConfig& config = e.config;
  const LayerWeights& w = e.layer_weights();
  const std::array<Weight, 2> weights{w.q_a ? w.q_a : w.q, w.kv_a};
  const Tensor qkv = e.f32(config.qkv_size(e.layer));  // [tokens, (q_rank or heads * key_size) + head_size]
  e.add("qkv", LinearArgs{.x = normed, .weights = weights, .out = qkv});

  const Tensor q = emit_queries(e, normed, qkv);
  const Tensor attending =
      e.activations(config.q_size(e.layer));  // [tokens, heads * (kv_rank + rotary_size)]
  e.add("latent_kv_write",
        LatentKvWriteArgs{.q = q,
                          .kv = Emitter::columns(qkv, qkv.cols - config.head_size, config.head_size),
                          .q_out = attending,
                          .heads = config.num_heads,
                          .rotary_size = config.rotary_size,
                          .pairing = config.architecture.rope_pairing,
                          .cos_sin = e.layer_config().rope == LayerConfig::kNoRope ? nullptr : e.angles(),
                          .kv_norm = w.kv_a_norm,
                          .norm_eps = config.norm_eps,
                          .kv_layer = e.kv_layer(),
                          .q_scale = e.layer_config().has_temperature ? e.memory.q_scales : nullptr});
  if (e.only_keys) return {};
  e.add("attn_k_b", HeadLinearArgs{.x = q, .weight = w.k_b, .out = attending});
  const Tensor attended = e.activations(config.attended_size(e.layer));  // [tokens, heads * kv_rank]
  emit_attend(e, attending, attended);
  const Tensor values = e.activations(config.output_size(e.layer));  // [tokens, heads * value_size]
  e.add("attn_v_b", HeadLinearArgs{.x = attended, .weight = w.v_b, .out = values});
  return values;
}

}  // namespace minfer
