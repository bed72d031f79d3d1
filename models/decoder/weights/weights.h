#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/target.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {

/// The weights of a gated delta net, except for the product at its end.
struct DeltaNetWeights {
  Weight qkv, z;       ///< [channels, hidden], [value_columns, hidden]
  Weight beta, alpha;  ///< [value_heads, hidden] x 2; alpha null: beta has both, [2 value_heads, hidden]
  /// Kimi: [gate_rank, hidden] x 2. Then alpha is [alphas, gate_rank], z [value_columns, gate_rank], and LayerWeights has q, k, v.
  Weight alpha_in, z_in;
  Weight conv;            ///< [conv_size, channels] f32: transposed
  Weight dt_bias, decay;  ///< [1, DeltaNetShape::alphas()], [1, value_heads] f32
  Weight norm;            ///< [1, value_size] f32
};

/// The weights of a gated short convolution, except for the product at its end.
struct ShortConvWeights {
  Weight in, in_bias;  ///< [3 conv_channels, hidden], [1, 3 conv_channels] f32
  Weight conv, bias;   ///< [conv_size, conv_channels] f32: transposed; [1, conv_channels] f32
};

/// The weights of Mamba-2, except for the product at its end.
struct MambaWeights {
  Weight in;                    ///< [value_columns + channels + value_heads, hidden]: z, x, B and C, dt
  Weight conv, bias;            ///< [conv_size, channels] f32: transposed; [1, channels] f32
  Weight dt_bias, decay, skip;  ///< [1, value_heads] x 3 f32
  Weight norm;                  ///< [key_heads, value_columns / key_heads] f32
};

/// The weights of latent attention's indexer.
struct IndexerWeights {
  Weight q;                    ///< [heads * key_size, q_rank]
  Weight k, heads;             ///< [key_size, hidden], [heads, hidden]
  Weight k_norm, k_norm_bias;  ///< [1, key_size] f32 x 2
};

/// The weights that mix residual streams (MixStreamsArgs), and of LAuReL.
struct StreamWeights {
  Weight router, router_norm;  ///< [streams, hidden], [1, hidden] f32
  Weight predict, correct;     ///< MixStreamsArgs::coefs
  Weight scale;                ///< [1, hidden] f32: MixStreamsArgs::weight
  Weight laurel_in, laurel_out,
      laurel_norm;  ///< [laurel_rank, hidden], [hidden, laurel_rank], [1, hidden] f32
};

/// One decoder layer's weights on the backend. Null if the family has no such weight.
struct LayerWeights {
  Weight attn_norm;       ///< [1, hidden] f32
  Weight attn_norm_bias;  ///< [1, hidden] f32
  Weight q, k, v;         ///< [gated_q_size, hidden], [kv_size, hidden] x 2; v null: its product is k's
  Weight q_a, q_a_norm;   ///< latent: [q_rank, hidden], [1, q_rank] f32; q is then [heads * key_size, q_rank]
  Weight kv_a, kv_a_norm;  ///< latent, instead of k and v: [head_size, hidden], [1, kv_rank] f32
  Weight k_b, v_b;         ///< latent, of each head: [kv_rank, key_size - rotary_size], [value_size, kv_rank]
  IndexerWeights indexer;  ///< latent
  DeltaNetWeights delta;   ///< instead of attention's
  ShortConvWeights short_conv;    ///< also instead of attention's
  MambaWeights mamba;             ///< likewise
  Weight q_bias, k_bias, v_bias;  ///< [1, q_size], [1, kv_size] x 2 f32
  Weight q_norm, k_norm;      ///< [1 or heads, head_size] x 2 f32; of whole rows [1, q_size], [1, kv_size]
  Weight sinks;               ///< [1, heads] f32
  Weight attn_output;         ///< [hidden, output_size]; of layers with states as well
  Weight attn_output_bias;    ///< [1, hidden] f32; with several ranks, only on the first
  Weight attn_post_norm;      ///< [1, hidden] f32
  Weight ffn_norm;            ///< [1, hidden] f32
  Weight ffn_norm_bias;       ///< [1, hidden] f32
  Weight gate, up, down;      ///< dense: [ffn, hidden] x 2, [hidden, ffn]; MoE: one matrix an expert
  Weight gate_bias, up_bias;  ///< [1, ffn] x 2 f32; MoE: [experts, ffn] x 2
  Weight down_bias;           ///< [1, hidden] f32; MoE: [experts, hidden]; of several ranks the first one's
  Weight ffn_post_norm;       ///< [1, hidden] f32
  float output_scale = 1.0f;  ///< scales the residual stream behind the layer
  Weight router;              ///< MoE: [experts, hidden]
  Weight router_scale;        ///< [1, hidden] f32: multiplies the router's normed input
  Weight expert_scales;       ///< [1, experts] f32: multiply the experts' weights
  /// For experts beside a dense block (the shared weights below): the norms in front of and behind the experts, and behind the block, [1, hidden] f32.
  Weight expert_norm, expert_post_norm, shared_post_norm;
  Weight latent_down, latent_up;  ///< [latent, hidden], [hidden, latent]: around the chosen experts
  Weight router_bias;             ///< [1, experts] f32
  Weight choice_bias;             ///< [1, experts] f32: see MoeRouteArgs::bias
  Weight shared_gate, shared_up, shared_down;        ///< [shared ffn, hidden] x 2, [hidden, shared ffn]
  Weight input_gate, input_output, input_post_norm;  ///< [input, hidden], [hidden, input], [1, hidden] f32
  StreamWeights streams;
  Weight shared_weight;  ///< [1, hidden]: weights a token's shared experts by the sigmoid of the product

  /// The norm in front of the layer's first block; null: none.
  const Weight& first_norm() const { return attn_norm ? attn_norm : ffn_norm; }
};

/// The weights of the layer for drafts beside those that every layer has (emit/draft.cpp).
struct DraftWeights {
  Weight embedding_norm, hidden_norm;  ///< [1, hidden] f32 x 2
  Weight from_embedding, from_hidden;  ///< [hidden, hidden] x 2
  Weight embedding, output_norm,
      output;  ///< as in ModelWeights, which has them if the layer has none of its own
};

struct EagleWeights;

/// All weights of a model on the backend, and the host memory of converted weights.
struct ModelWeights {
  Weight embedding;                          ///< [vocab, hidden]
  Weight layer_embedding, layer_projection;  ///< [vocab, layers * input], [layers * input, hidden]
  Weight layer_input_norm;                   ///< [1, input] f32
  /// [hidden, hidden] for each stream but the first: from the embedding, and in front of the last norm.
  std::vector<Weight> to_streams, from_streams;
  Weight output_norm;       ///< [1, hidden] f32
  Weight output_norm_bias;  ///< [1, hidden] f32 or null
  Weight output;            ///< [vocab, hidden]; the embedding itself when the model ties them
  Weight output_bias;  ///< [1, vocab] f32: -inf for tokens that are never sampled; null: the file names none
  std::vector<float> rope_frequency_factors;  ///< [rotary_size / 2] or empty
  /// LongRoPE: the same for contexts up to the original one, and for longer ones.
  std::vector<float> rope_short_factors, rope_long_factors;
  std::vector<LayerWeights> layers;  ///< of ModelConfig::layers
  DraftWeights draft;
  std::shared_ptr<const EagleWeights> eagle;  ///< of ModelConfig::eagle
  std::vector<std::vector<float>> converted;  ///< vectors that were not f32 in the file
};

/// The weights of an EAGLE-3 head; E is its hidden size, H the target's (emit/eagle.cpp).
struct EagleWeights {
  Weight features_norm;  ///< [1, 3 H] f32 or null
  Weight from_features;  ///< [E, 3 H]
  Weight hidden_norm;    ///< [1, E] f32
  Weight columns;        ///< [1, vocab] f32: EagleHead::columns; null: the head drafts all tokens
  /// The layer: q, k and v are [any, 2 E], attn_norm is the embedding's. Embedding and output are the target's where the file has none.
  ModelWeights model;
};

/// Called from time to time while weights load, with the number of loaded tensors and of all tensors.
using LoadProgress = std::function<void(size_t done, size_t total)>;

/// Checks every tensor's shape against the configuration and loads it. Refuses a tensor that the family does not
/// use, since without it the result would not be the model's. Throws FileError naming the tensor, the found
/// and the expected shape. `quantization`: the type that the matrices of layers become; see tensors_to_load(), which throws if none can.
ModelWeights load_weights(const ModelSource& source, Target& target, const LoadProgress& progress = {},
                          std::optional<DType> quantization = {});

/// Throws FileError naming the key or the tensor, the expected and the found value, unless the ops of a
/// backend with these limits can run the model. `backend` names it in the message.
void check_shapes(const ModelSource& source, const ShapeLimits& limits, std::string_view backend);

}  // namespace minfer
