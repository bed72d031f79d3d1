#include <array>
#include <cmath>

#include "models/decoder/emit/emitter.h"

// The lightning indexer of latent attention (DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1):
//
//   indexer_q         q of the indexer's heads                          of the vector that attention's queries are products of
//   indexer_k         [key | weights of heads]                          one product of x
//   indexer_k_norm    the key's layer norm
//   indexer_kv_write  rotation; the key to its cache
//   choose_keys       the keys with the largest sum over heads of weight max(q . key, 0)
//
// DeepSeek's and llama.cpp's code multiply q and key by a Hadamard matrix before they are quantised. It is orthogonal, so products stay as
// they are, and there is no such op here. Where no sequence has more keys than are chosen, only keys are computed, for blocks that are
// read later.
namespace minfer {
namespace {

/// A constant of both models' code (torch.nn.LayerNorm of the indexer); no key of a file says it.
constexpr float kKeyNormEps = 1e-6f;

}  // namespace

void emit_indexer(Emitter& e, const Tensor& normed, const Tensor& q_rank) {
  const Indexer& indexer = e.config.indexer;
  const IndexerWeights& w = e.layer_weights().indexer;
  const int32_t heads = e.chooses_keys() ? indexer.heads : 0;
  const int64_t q_size = int64_t{heads} * indexer.key_size, key_size = indexer.key_size;
  const Tensor all = e.f32((q_size + key_size + heads + 3) / 4 * 4);  // [tokens, q | key | weights], aligned
  const Tensor key = Emitter::columns(all, q_size, key_size);
  if (heads > 0)
    e.add("indexer_q",
          LinearArgs{.x = q_rank, .weights = {&w.q, 1}, .out = Emitter::columns(all, 0, q_size)});
  const std::array<Weight, 2> of_x{w.k, w.heads};
  e.add("indexer_k", LinearArgs{.x = normed,
                                .weights = {of_x.data(), size_t{heads > 0 ? 2u : 1u}},
                                .out = Emitter::columns(all, q_size, key_size + heads)});
  e.add("indexer_k_norm", NormArgs{.x = key,
                                   .kind = NormKind::layer,
                                   .weight = w.k_norm,
                                   .bias = w.k_norm_bias,
                                   .eps = kKeyNormEps,
                                   .out = key});
  const bool in_place = e.activation == DType::f32 || heads == 0;
  const Tensor q = in_place ? Tensor{} : e.activations(q_size);
  const KvLayer keys = e.indexer_layer();
  e.add({.name = "indexer_kv_write", .rotary_size = e.config.rotary_size},
        RopeKvWriteArgs{.qkv = Emitter::columns(all, 0, q_size + key_size),
                        .q_out = q,
                        .heads = heads,
                        .rotary_size = e.config.rotary_size,
                        .pairing = e.config.architecture.indexer_pairing,
                        .cos_sin = e.angles(),
                        .q_norm = {},
                        .k_norm = {},
                        .kv = keys});
  if (heads == 0) return;
  const Numbers<int32_t> chosen = e.numbers<int32_t>(indexer.most_chosen);
  e.add("choose_keys",
        ChooseKeysArgs{.q = in_place ? Emitter::columns(all, 0, q_size) : q,
                       .weights = Emitter::columns(all, q_size + key_size, heads),
                       .heads = heads,
                       .scale = 1.0f / std::sqrt(static_cast<float>(indexer.heads * indexer.key_size)),
                       .keys = keys,
                       .most = indexer.most_chosen,
                       .chosen = chosen});
  e.chosen = chosen;
}

}  // namespace minfer
