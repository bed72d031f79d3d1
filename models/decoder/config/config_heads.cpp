#include "models/decoder/config/config_heads.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace minfer {
namespace {

bool has_values(const GgufFile& file, size_t layer) {
  const auto has = [&](std::string_view part) {
    return file.find_tensor(fmt::format("blk.{}.{}.weight", layer, part)) != nullptr;
  };
  return has("attn_v") || has("attn_qkv");
}

/// The numbers of a key for the layers that are run. An array counts layers that only predict further tokens too.
std::vector<int32_t> of_run_layers(const KeyReader& keys, std::string_view key, const ModelConfig& config,
                                   int64_t high, std::optional<int64_t> fallback, int64_t low) {
  const int32_t blocks = keys.ranged("block_count", 1, kMaxLayers);
  std::vector<int32_t> values = keys.of_layers(key, blocks, high, fallback, low);
  values.resize(static_cast<size_t>(config.num_layers));
  return values;
}

/// The KV heads of each layer; 0 for layers with states and feed-forward blocks.
std::vector<int32_t> kv_heads_of_layers(const KeyReader& keys, const ModelConfig& config) {
  constexpr std::string_view kKey = "attention.head_count_kv";
  const Architecture& family = config.architecture;
  const int64_t least = family.has_short_convs || family.has_mamba || family.has_kimi_delta ? 0 : 1;
  std::vector<int32_t> kv_heads = of_run_layers(keys, kKey, config, kMaxHeads, config.num_heads, least);
  if (std::ranges::max(kv_heads) == 0) keys.refuse(kKey, "is 0 in all layers: none attends");
  for (const int32_t of_layer : kv_heads) {
    if (of_layer > 0 && config.num_heads % of_layer != 0) {
      keys.refuse("attention.head_count", "is {}, expected a multiple of {} = {}", config.num_heads,
                  keys.full_key(kKey), of_layer);
    }
  }
  return kv_heads;
}

/// Files since April 2025 say by key_length and value_length what attention sees, one KV head, and by *_mla what a head has; older ones
/// the latter alone.
void read_latent_attention(const KeyReader& keys, ModelConfig& config) {
  LatentAttention& latent = config.latent;
  latent.kv_rank = keys.ranged("attention.kv_lora_rank", 1, kMaxHeadSize);
  latent.q_rank = keys.ranged("attention.q_lora_rank", 0, kMaxDimension, 0);
  config.rotary_size = keys.ranged("rope.dimension_count", 2, kMaxHeadSize);
  config.head_size = latent.kv_rank + config.rotary_size;
  const bool is_new = keys.has("attention.key_length_mla");
  const std::string_view key_length = is_new ? "attention.key_length_mla" : "attention.key_length";
  latent.key_size = keys.ranged(key_length, 1, kMaxHeadSize);
  latent.value_size =
      keys.ranged(is_new ? "attention.value_length_mla" : "attention.value_length", 1, kMaxHeadSize);
  if (config.rotary_size % 2 != 0 || config.rotary_size >= latent.key_size) {
    keys.refuse("rope.dimension_count", "is {}, expected an even number below {} = {}", config.rotary_size,
                keys.full_key(key_length), latent.key_size);
  }
  const auto must_be = [&](std::string_view key, int32_t expected) {
    const int32_t found = keys.ranged(key, 1, kMaxDimension, expected);
    if (found == expected) return;
    keys.refuse(key, "is {}, expected {}, what latent attention makes of it by {}", found, expected,
                keys.full_key("attention.kv_lora_rank"));
  };
  if (is_new) {
    must_be("attention.key_length", config.head_size);
    // Kimi Linear's converter has the hidden size by the number of heads there.
    if (!config.architecture.has_kimi_delta) must_be("attention.value_length", latent.kv_rank);
  }
  for (const int32_t kv_heads : kv_heads_of_layers(keys, config)) {
    if (kv_heads > 1 && kv_heads != config.num_heads) {
      keys.refuse("attention.head_count_kv", "is {}, expected 1 or {} of latent attention", kv_heads,
                  config.num_heads);
    }
  }
  config.num_kv_heads = 1;
  if (constexpr std::string_view kWindow = "attention.sliding_window"; keys.has(kWindow))
    fail<FileError>("{}: {}: not supported with latent attention", keys.file().name(),
                    keys.full_key(kWindow));
}

/// The most keys of a query: the list of each token of a step is in memory.
constexpr int64_t kMostChosenKeys = 1 << 16;

/// The layers with an indexer. llama.cpp (src/models/glm-dsa.cpp) has the same for files of GLM-5.2 from before there was a key.
std::vector<bool> layers_with_indexer(const KeyReader& keys, const ModelConfig& config) {
  constexpr std::string_view kTypes = "attention.indexer.types";
  if (keys.has(kTypes)) return keys.flags_of_layers(kTypes, config.num_layers);
  const int32_t sparse_from = config.architecture.sparse_indexer_context;
  std::vector<bool> layers;
  for (int32_t layer = 0; layer < config.num_layers; ++layer)
    layers.push_back(sparse_from == 0 || config.context_length < sparse_from || layer < 2 || layer % 4 == 2);
  return layers;
}

/// The size of heads of q, k and v. `kind`: "" or "_swa", the suffix of keys for layers with windows only.
int32_t read_head_size(const KeyReader& keys, std::string_view kind, int64_t fallback) {
  const std::string key_length = fmt::format("attention.key_length{}", kind);
  const std::string value_length = fmt::format("attention.value_length{}", kind);
  const int32_t size = keys.ranged(key_length, 1, kMaxHeadSize, fallback);
  if (keys.ranged(value_length, 1, kMaxHeadSize, size) != size) {
    keys.refuse(value_length, "differs from {} = {}: not supported", keys.full_key(key_length), size);
  }
  return size;
}

int32_t read_rotary_size(const KeyReader& keys, std::string_view kind, int32_t head_size) {
  const std::string key = fmt::format("rope.dimension_count{}", kind);
  const int32_t size = keys.ranged(key, 2, kMaxHeadSize, head_size);
  if (size % 2 != 0 || size > head_size) {
    keys.refuse(key, "is {}, expected an even number up to the head size {}", size, head_size);
  }
  return size;
}

constexpr int64_t kMostConvInputs = 16;

DeltaNetShape read_delta_shape(const KeyReader& keys) {
  DeltaNetShape shape;
  shape.conv_size = keys.ranged("ssm.conv_kernel", 2, kMostConvInputs);
  shape.key_size = keys.ranged("ssm.state_size", 1, kMaxHeadSize);
  shape.key_heads = keys.ranged("ssm.group_count", 1, kMaxHeads);
  shape.value_heads = keys.ranged("ssm.time_step_rank", 1, kMaxHeads);
  if (shape.value_heads % shape.key_heads != 0) {
    keys.refuse("ssm.time_step_rank", "is {}, expected a multiple of {} = {}", shape.value_heads,
                keys.full_key("ssm.group_count"), shape.key_heads);
  }
  const int32_t columns = keys.ranged("ssm.inner_size", 1, kMaxHeads * kMaxHeadSize);
  shape.value_size = columns / shape.value_heads;
  if (columns % shape.value_heads != 0 || shape.value_size > kMaxHeadSize) {
    keys.refuse("ssm.inner_size", "is {}, expected {} = {} heads of at most {} elements", columns,
                keys.full_key("ssm.time_step_rank"), shape.value_heads, kMaxHeadSize);
  }
  return shape;
}

/// Kimi delta attention has as many heads as attention, and values as large as keys.
void read_kimi_delta(const KeyReader& keys, ModelConfig& config) {
  const int32_t size = keys.ranged("kda.head_dim", 1, kMaxHeadSize);
  config.delta_net = {.key_heads = config.num_heads,
                      .value_heads = config.num_heads,
                      .key_size = size,
                      .value_size = size,
                      .conv_size = keys.ranged("ssm.conv_kernel", 2, kMostConvInputs),
                      .decays_rows = true};
  std::vector<bool> is_recurrent;
  for (const int32_t kv_heads : kv_heads_of_layers(keys, config))
    is_recurrent.push_back(kv_heads == 0);
  set_delta_layers(config, is_recurrent);
}

/// Makes the layer a feed-forward block alone where it has a feed-forward size: families whose layers are single blocks.
/// Throws Error if such a layer has KV heads too.
void set_only_ffn(const KeyReader& keys, const ModelConfig& config, LayerConfig& layer, size_t index) {
  const bool has_ffn = ffn_sizes_of_layers(keys, config)[index] > 0;
  if (has_ffn && layer.attends())
    keys.refuse("feed_forward_length", "is not 0 in layer {}, which has KV heads: expected one of the two",
                index);
  layer.has_ffn = layer.is_only_ffn = has_ffn;
  layer.is_mamba = layer.is_mamba && !has_ffn;
  layer.has_experts = layer.has_experts && has_ffn;
}

/// By an array, which counts layers that only predict further tokens too, or by the period of the layers that attend.
std::vector<bool> recurrent_layers(const KeyReader& keys, const ModelConfig& config) {
  constexpr std::string_view kFlags = "attention.recurrent_layers";
  if (keys.has(kFlags)) {
    std::vector<bool> flags = keys.flags_of_layers(kFlags, keys.ranged("block_count", 1, kMaxLayers));
    flags.resize(static_cast<size_t>(config.num_layers));
    return flags;
  }
  const int32_t period =
      keys.ranged("full_attention_interval", 2, kMaxLayers, config.architecture.delta_period);
  return all_but_every(period, config.num_layers);
}

}  // namespace

std::vector<int32_t> ffn_sizes_of_layers(const KeyReader& keys, const ModelConfig& config) {
  const int64_t least = config.architecture.has_single_blocks ? 0 : 1;
  return of_run_layers(keys, "feed_forward_length", config, kMaxDimension, std::nullopt, least);
}

void read_attention(const KeyReader& keys, ModelConfig& config) {
  config.num_heads = keys.same_in_all_layers("attention.head_count", config.num_layers, kMaxHeads);
  if (config.architecture.has_latent_attention) return read_latent_attention(keys, config);
  const std::vector<int32_t> kv_heads = kv_heads_of_layers(keys, config);
  config.num_kv_heads = *std::find_if(kv_heads.rbegin(), kv_heads.rend(), [](int32_t of) { return of > 0; });
  if (config.architecture.has_short_convs) {
    config.conv_size = keys.ranged("shortconv.l_cache", 2, kMaxShortConvInputs);
    config.conv_channels = config.hidden_size;
  }
  config.head_size = read_head_size(keys, "", config.hidden_size / config.num_heads);
  const bool has_positions =
      config.architecture.no_rope_period != 1;  // else the converter's number means nothing
  config.rotary_size =
      has_positions ? read_rotary_size(keys, "", config.head_size) : config.head_size / 2 * 2;
}

void read_indexer(const KeyReader& keys, ModelConfig& config) {
  if (!config.architecture.has_indexer) return;
  constexpr std::string_view kKeySize = "attention.indexer.key_length";
  config.indexer = {.heads = keys.ranged("attention.indexer.head_count", 1, kMaxHeads),
                    .key_size = keys.ranged(kKeySize, 1, kMaxHeadSize),
                    .most_chosen = keys.ranged("attention.indexer.top_k", 1, kMostChosenKeys)};
  if (config.indexer.key_size < config.rotary_size)
    keys.refuse(kKeySize, "is {}, expected at least {} = {}", config.indexer.key_size,
                keys.full_key("rope.dimension_count"), config.rotary_size);
  if (config.latent.q_rank == 0)
    keys.refuse("attention.q_lora_rank", "is 0, expected the rank of the indexer's queries");
  const std::vector<bool> has_indexer = layers_with_indexer(keys, config);
  if (!has_indexer.front())
    keys.refuse("attention.indexer.types", "is false for layer 0: no layer before it chooses keys");
  for (size_t i = 0; i < has_indexer.size(); ++i)
    config.layers[i].takes_choice = !has_indexer[i];
}

void read_layer_heads(const KeyReader& keys, bool states_scale, ModelConfig& config) {
  if (config.is_latent()) return;
  const std::vector<int32_t> kv_heads = kv_heads_of_layers(keys, config);
  const int32_t of_windows = read_head_size(keys, "_swa", config.head_size);
  for (size_t i = 0; i < kv_heads.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.is_short_conv = config.architecture.has_short_convs && kv_heads[i] == 0;
    layer.is_mamba = config.architecture.has_mamba && kv_heads[i] == 0;
    if (config.architecture.has_single_blocks) set_only_ffn(keys, config, layer, i);
    if (kv_heads[i] == 0) {
      layer.rope = LayerConfig::kNoRope;
      continue;
    }
    LayerHeads heads{kv_heads[i], layer.window ? of_windows : config.head_size, config.attention_scale};
    if (!states_scale && heads.size != config.head_size)
      heads.scale *= std::sqrt(static_cast<float>(config.head_size) / static_cast<float>(heads.size));
    if (heads != config.heads(-1)) layer.heads = heads;
    layer.values_are_keys = config.architecture.may_lack_values && !has_values(keys.file(), i);
  }
}

void read_layer_rotation(const KeyReader& keys, ModelConfig& config) {
  if (config.is_latent()) return;
  if (config.ropes.size() > 1) {
    const auto windowed =
        std::ranges::find_if(config.layers, [](const LayerConfig& layer) { return layer.rope == 1; });
    const int32_t head_size = config.heads(static_cast<int32_t>(windowed - config.layers.begin())).size;
    const bool is_said = keys.has("rope.dimension_count_swa") || head_size != config.head_size;
    if (is_said) config.ropes.back().rotary_size = read_rotary_size(keys, "_swa", head_size);
  }
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const bool has_rope = config.layer(i).rope != LayerConfig::kNoRope;
    if (!has_rope || config.rotary_size_of(i) <= config.heads(i).size) continue;
    keys.refuse("rope.dimension_count", "is {}, expected at most {}, the head size of layer {}",
                config.rotary_size_of(i), config.heads(i).size, i);
  }
}

void read_delta_net(const KeyReader& keys, ModelConfig& config) {
  if (config.architecture.has_kimi_delta) return read_kimi_delta(keys, config);
  if (config.architecture.delta_period == 0 && !config.architecture.has_mamba) return;
  config.delta_net = read_delta_shape(keys);
  if (config.architecture.has_mamba) return;  // read_layer_heads() sets the layers
  config.delta_net.in_turn = config.architecture.values_in_turn;
  const std::vector<bool> recurrent = recurrent_layers(keys, config);
  if (std::ranges::count(recurrent, false) == 0) {
    fail<FileError>("{}: none of {} layers attends by {} or {}: not supported", keys.file().name(),
                    config.num_layers, keys.full_key("attention.recurrent_layers"),
                    keys.full_key("full_attention_interval"));
  }
  set_delta_layers(config, recurrent);
}

}  // namespace minfer
