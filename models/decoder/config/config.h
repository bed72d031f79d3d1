#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/comm/rank.h"
#include "models/decoder/config/architecture.h"
#include "models/gguf/gguf.h"

namespace minfer {

/// How rotary frequencies are stretched to contexts longer than the model was first trained for.
struct RopeScaling {
  enum class Kind : uint8_t { none, linear, yarn, long_rope };
  Kind kind = Kind::none;
  float factor = 1.0f;
  int32_t original_context = 0;  ///< YaRN, LongRoPE: context before stretching
  float magnitude = 1.0f;  ///< YaRN, LongRoPE: multiplies cos and sin, so that logits grow by its square
  float attention_factor = 1.0f;  ///< YaRN of DeepSeek: multiplies the attention scale
  float beta_fast = 32.0f;        ///< YaRN: rotations above which a dimension is left alone
  float beta_slow = 1.0f;         ///< YaRN: rotations below which it is interpolated fully
  bool rounds = true;             ///< YaRN: these two to whole dimensions
};

/// A table of rotary angles.
struct RopeConfig {
  float base = 10000.0f;
  RopeScaling scaling = {};
  int32_t rotary_size = 0;  ///< rotated elements of a head; 0: ModelConfig::rotary_size
};

/// The heads of one layer, except for the number of query heads, which the model sets.
struct LayerHeads {
  int32_t kv_heads = 0;
  int32_t size = 0;    ///< of q and k as attention sees them; latent: of a row of the cache
  float scale = 0.0f;  ///< of products of queries and keys

  bool operator==(const LayerHeads&) const = default;
};

/// The attention of one layer, and the kind of its feed-forward block.
struct LayerConfig {
  static constexpr int32_t kNoRope = -1;
  static constexpr int32_t kOwn = -1;

  AttentionWindow window = {};   ///< the keys that a query sees
  int32_t rope = 0;              ///< index into ModelConfig::ropes, or kNoRope: positions are not encoded
  bool has_temperature = false;  ///< ModelConfig::temperature
  bool has_experts = false;      ///< in its feed-forward block
  bool is_delta_net = false;     ///< the layer does not attend: ModelConfig::delta_net
  bool is_short_conv = false;    ///< the layer does not attend: ModelConfig::conv_size
  bool is_mamba = false;     ///< the layer does not attend: Mamba-2 of the sizes in ModelConfig::delta_net
  bool is_only_ffn = false;  ///< the layer is a feed-forward block, with nothing in front
  bool has_ffn = true;       ///< false: the layer ends behind attention, or what stands in its place
  bool values_are_keys = false;  ///< before norm and rotation: there is no product for values
  int32_t kv_of = kOwn;  ///< an earlier layer, whose keys and values this one reads instead of its own
  int32_t ffn_size = 0;  ///< of a dense layer, if it differs from the model's; else 0
  /// NormArgs::cut of the gates of a dense layer, which leaves a few of them; null: all gates count.
  std::optional<float> gate_cut = {};
  bool takes_choice =
      false;  ///< attends to the keys that the last layer before it with ModelConfig::indexer chose
  std::optional<LayerHeads> heads = {};  ///< set if they differ from the model's

  bool has_state() const { return is_delta_net || is_short_conv || is_mamba; }
  bool attends() const { return !has_state() && !is_only_ffn; }
  bool operator==(const LayerConfig&) const = default;
};

/// Scales queries by their position p, so that attention over many keys stays as sharp (Nakanishi 2025, "Scalable-softmax is
/// superior for attention"; Llama 4). The factor is 1 + scale ln(floor((p + first) / length) + 1).
struct AttentionTemperature {
  float scale = 0.0f;  ///< 0: none
  int32_t length = 1;
  int32_t first = 1;
};

/// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1). Keys and values of all heads are products of one latent
/// vector for each token. The cache holds only that vector and one rotated key for all heads. Here the products apply to the other side
/// ("absorbed"): to queries, and to attention's output. So many query heads attend over one KV head.
struct LatentAttention {
  int32_t q_rank = 0;      ///< size of the vector that queries are products of; 0: the hidden state
  int32_t kv_rank = 0;     ///< size of the latent vector; 0: attention is not latent
  int32_t key_size = 0;    ///< of a head of q before its product, the rotated elements last
  int32_t value_size = 0;  ///< of a head behind its product
};

/// The lightning indexer (DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1): small heads of queries and one key a token, which has a cache of its
/// own, choose the keys that a query of latent attention sees.
struct Indexer {
  int32_t heads = 0;
  int32_t key_size = 0;     ///< of a head; its first ModelConfig::rotary_size elements are rotated
  int32_t most_chosen = 0;  ///< keys that a query sees; 0: the model has no indexer, and queries see all
};

struct EagleHead;

/// The shape of a decoder-only model, from GGUF metadata or a synthetic model's table. All values are
/// checked: positive where they must be, and consistent with each other.
struct ModelConfig {
  Architecture architecture;
  std::string name;
  int32_t vocab_size = 0;
  int32_t whole_vocab = 0;                 ///< for a share of a model: of all ranks together
  std::vector<int32_t> suppressed_tokens;  ///< their logits are -inf
  int32_t context_length = 0;
  int32_t hidden_size = 0;
  int32_t num_layers = 0;  ///< block_count minus the blocks that only predict further tokens
  bool has_draft_layer =
      false;  ///< the first of these is used for drafts: layers[num_layers] (emit/draft.cpp)
  std::shared_ptr<const EagleHead> eagle =
      {};  ///< this layer is a head of another file; null: the model's own
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;  ///< of layers without heads of their own (LayerConfig::heads), as is head_size
  int32_t head_size = 0;     ///< as attention sees it; latent: of a row of the cache, kv_rank + rotary_size
  LatentAttention latent = {};
  Indexer indexer = {};          ///< of latent attention
  DeltaNetShape delta_net = {};  ///< of the layers that are delta nets, or Mamba-2
  int32_t conv_size = 0;         ///< of the short convolutions: number of inputs of each
  int32_t conv_channels = 0;     ///< number of channels: the hidden size, or a share of it
  int32_t ffn_size = 0;          ///< of dense layers, the largest; 0: all have experts
  int32_t num_experts = 0;
  int32_t num_experts_used = 0;
  int32_t num_dense_layers = 0;    ///< in a model with experts: the first layers
  int32_t expert_period = 1;       ///< behind them, every n-th layer of the model has experts
  int32_t expert_ffn_size = 0;     ///< of one expert
  int32_t expert_latent_size = 0;  ///< of what the chosen experts get and give; 0: the hidden size
  int32_t shared_ffn_size = 0;     ///< of the shared experts, side by side as one; 0: none
  int32_t layer_input_size = 0;    ///< of the token's own input to each layer; 0: layers have none
  /// Residual streams: layers compute the first and predict the others (MixStreamsArgs).
  int32_t num_streams = 1;
  int32_t laurel_rank = 0;  ///< of the product beside attention (emit/streams.cpp), with several streams
  ExpertChoice expert_choice = {};
  /// The rank of a share of a model (shard.h). Then heads, KV heads, feed-forward sizes and vocab_size are the share's.
  Rank rank = {};
  float norm_eps = 1e-5f;
  int32_t rotary_size = 0;  ///< of tables without their own (RopeConfig)
  /// The tables that layers refer to. Tensors of factors (ModelWeights) belong to the first table.
  std::vector<RopeConfig> ropes = {RopeConfig{}};
  std::vector<LayerConfig> layers;  ///< [num_all_layers()]

  float attention_scale = 0.0f;  ///< of products of queries and keys, in layers without their own scale
  float attention_cap = 0.0f;    ///< see AttentionArgs::logit_cap; 0: none
  AttentionTemperature temperature = {};  ///< of the layers with has_temperature
  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;   ///< of a block's addition to the residual stream
  float logit_scale = 1.0f;      ///< multiplies the logits
  float logit_cap = 0.0f;        ///< logits l become cap tanh(l / cap), after the scale; 0: no cap
  bool parallel_blocks = false;  ///< see ParallelBlocks
  std::vector<Activation> activations = {};  ///< [num_layers] without a gate; else empty

  /// With the layer for drafts.
  int32_t num_all_layers() const { return num_layers + (has_draft_layer ? 1 : 0); }
  /// The heads of a layer. For any other index: the heads of layers without their own.
  LayerHeads heads(int32_t layer) const {
    return layer_or_plain(layer).heads.value_or(LayerHeads{num_kv_heads, head_size, attention_scale});
  }
  bool values_are_keys(int32_t layer) const { return layer_or_plain(layer).values_are_keys; }
  bool shares_kv(int32_t layer) const { return layer_or_plain(layer).kv_of != LayerConfig::kOwn; }
  bool is_delta_net(int32_t layer) const { return layer_or_plain(layer).is_delta_net; }
  bool is_short_conv(int32_t layer) const { return layer_or_plain(layer).is_short_conv; }
  bool is_mamba(int32_t layer) const { return layer_or_plain(layer).is_mamba; }
  bool attends(int32_t layer) const { return layer_or_plain(layer).attends(); }
  int32_t num_state_layers() const {
    return static_cast<int32_t>(std::ranges::count(layers, true, &LayerConfig::has_state));
  }
  /// True if sequences have states (RecurrentStatePool) beside keys and values.
  bool is_recurrent() const { return num_state_layers() > 0; }
  /// The number of elements of RecurrentLayer::conv in a slot. A model has one kind of layers with states.
  int64_t conv_state() const { return delta_net.conv_state() + int64_t{conv_size - 1} * conv_channels; }
  bool has_like_heads() const {
    return std::ranges::all_of(layers, [this](const LayerConfig& of) { return of.heads == layers[0].heads; });
  }
  // The number of elements per token in a layer. Layers with states have no such q, keys and values; their products are in qkv_size().
  int32_t q_size(int32_t layer) const { return attends(layer) ? num_heads * heads(layer).size : 0; }
  /// 0 also if the layer reads the keys and values of another.
  int32_t kv_size(int32_t layer) const {
    return attends(layer) && !shares_kv(layer) ? heads(layer).kv_heads * heads(layer).size : 0;
  }
  /// The size of q as its product gives it.
  int32_t gated_q_size(int32_t layer) const { return (architecture.gates_heads ? 2 : 1) * q_size(layer); }
  /// The size of the products at the begin of attention. Latent: q, or the vector that q is a product of, and a row of the cache. Delta
  /// nets: the convolution's channels, z, beta and alpha; of Kimi's, vectors that alpha and z are products of. Mamba-2: z, the channels and
  /// dt. Short convolutions: b, c and v.
  int32_t qkv_size(int32_t layer) const {
    if (is_delta_net(layer) && delta_net.decays_rows)
      return delta_net.channels() + 2 * gate_rank() + delta_net.value_heads;
    if (is_delta_net(layer))
      return delta_net.channels() + delta_net.value_columns() + 2 * delta_net.value_heads;
    if (is_mamba(layer)) return delta_net.value_columns() + delta_net.channels() + delta_net.value_heads;
    if (is_short_conv(layer)) return 3 * conv_channels;
    if (!is_latent()) return gated_q_size(layer) + (values_are_keys(layer) ? 1 : 2) * kv_size(layer);
    return (latent.q_rank > 0 ? latent.q_rank : num_heads * latent.key_size) + head_size;
  }
  /// The size of the vectors that alphas and gates of Kimi delta attention are products of.
  int32_t gate_rank() const { return delta_net.key_size; }
  /// The size of a value as attention sees it.
  int32_t value_size(int32_t layer) const { return is_latent() ? latent.kv_rank : heads(layer).size; }
  /// The size of attention's output for all heads; output_size() is the size that the product behind it takes.
  int32_t attended_size(int32_t layer) const {
    return attends(layer) ? num_heads * value_size(layer) : output_size(layer);
  }
  int32_t output_size(int32_t layer) const {
    if (is_delta_net(layer) || is_mamba(layer)) return delta_net.value_columns();
    if (is_short_conv(layer)) return conv_channels;
    return num_heads * (is_latent() ? latent.value_size : heads(layer).size);
  }
  // The same for the largest layer.
  int32_t q_size() const { return largest(&ModelConfig::q_size); }
  int32_t kv_size() const { return largest(&ModelConfig::kv_size); }
  int32_t qkv_size() const { return largest(&ModelConfig::qkv_size); }
  int32_t attended_size() const { return largest(&ModelConfig::attended_size); }
  int32_t output_size() const { return largest(&ModelConfig::output_size); }
  bool is_latent() const { return latent.kv_rank > 0; }
  bool has_indexer(int32_t layer) const {
    return indexer.most_chosen > 0 && !layer_or_plain(layer).takes_choice;
  }
  /// The size of a head's key. Scores are scaled by its inverse root if no scale is given.
  int32_t key_size() const { return is_latent() ? latent.key_size : head_size; }
  int32_t rotary_size_of(const RopeConfig& rope) const {
    return rope.rotary_size > 0 ? rope.rotary_size : rotary_size;
  }
  /// A layer without positions counts as one with the first table.
  int32_t rotary_size_of(int32_t layer_index) const {
    return rotary_size_of(ropes[static_cast<size_t>(std::max(0, layer(layer_index).rope))]);
  }
  int32_t whole_vocab_size() const { return rank.is_alone() ? vocab_size : whole_vocab; }
  /// The number of tokens from a rank's first token to the next rank's first.
  int32_t vocab_share() const { return share_of_vocabulary(whole_vocab_size(), rank.count); }
  bool is_moe() const { return num_experts > 0; }
  bool has_experts(int32_t layer) const {
    return is_moe() && layer >= num_dense_layers && layer % expert_period == expert_period - 1;
  }
  int32_t num_expert_layers() const {
    return static_cast<int32_t>(std::ranges::count(layers, true, &LayerConfig::has_experts));
  }
  int32_t ffn_size_of(int32_t layer) const {
    const int32_t own = layer_or_plain(layer).ffn_size;
    return own > 0 ? own : ffn_size;
  }
  int32_t max_ffn_size() const { return std::max({ffn_size, expert_ffn_size, shared_ffn_size}); }
  const LayerConfig& layer(int32_t index) const { return layers[static_cast<size_t>(index)]; }
  /// Multiplies what experts and shared experts add to the residual stream.
  float expert_scale() const { return architecture.averages_shared && shared_ffn_size > 0 ? 0.5f : 1.0f; }
  /// True if products add to the residual stream themselves, with no norm or scale between.
  bool adds_products() const {
    return architecture.norm_placement == NormPlacement::before && residual_scale == 1.0f &&
           expert_scale() == 1.0f;
  }

 private:
  LayerConfig layer_or_plain(int32_t index) const {
    return index >= 0 && index < std::ssize(layers) ? layer(index) : LayerConfig{};
  }
  using SizeOfLayer = int32_t (ModelConfig::*)(int32_t layer) const;
  int32_t largest(SizeOfLayer size) const {
    int32_t most = (this->*size)(layers.empty() ? -1 : 0);
    for (int32_t i = 1; i < std::ssize(layers); ++i)
      most = std::max(most, (this->*size)(i));
    return most;
  }
};

/// The windows of layers in a context of `max_positions`, each size once. A window that holds the whole context does not count.
std::vector<AttentionWindow> windows_of(const ModelConfig& config, int32_t max_positions);
/// The kinds of attention in such a context, each once.
std::vector<AttentionKind> attention_kinds_of(const ModelConfig& config, int32_t max_positions);

/// Reads and checks ARCH.* metadata. llama.cpp writes some keys as an array with a value for each layer: KV heads may differ there;
/// the values of other keys must be alike. Throws FileError naming the key, the expected and the found value. `draft_layer`: with the
/// layer for drafts, if the file has one of a kind that is supported.
ModelConfig read_config(const GgufFile& file, bool draft_layer = false);
/// The same for a file of this family.
ModelConfig read_config(const GgufFile& file, const Architecture& family, bool draft_layer = false);

/// YaRN's magnitude of cos and sin for a stretch by `factor` (arXiv:2309.00071, section 3.4, refined by DeepSeek-V2's
/// mscale_all_dim, which GGUF calls yarn_log_multiplier; 0: none). It is multiplied by attention_factor, GGUF's rope.scaling.attn_factor.
float yarn_magnitude(float factor, float attention_factor, float log_multiplier);

/// cos and sin of every rotation angle, with all scaling applied: [max_positions, rotary_size / 2, 2].
/// `frequency_factors` (llama3 scaling: the rope_freqs tensor; LongRoPE: one of two) divides each frequency; empty means none. YaRN
/// as Peng et al. 2023 (arXiv:2309.00071), with the attention temperature folded into the table.
std::vector<float> make_rope_table(const RopeConfig& rope, int32_t rotary_size,
                                   std::span<const float> frequency_factors, int32_t max_positions);

}  // namespace minfer
