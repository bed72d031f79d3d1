#include "models/decoder/config/config_facts.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace minfer {
namespace {

std::string describe(const RopeConfig& rope, int32_t rotary_size) {
  const RopeScaling& scaling = rope.scaling;
  std::string text = fmt::format("base {}, {} dimensions", rope.base, rotary_size);
  switch (scaling.kind) {
    case RopeScaling::Kind::none:
      return text;
    case RopeScaling::Kind::linear:
      return text + fmt::format(", linear by {}", scaling.factor);
    case RopeScaling::Kind::yarn:
      return text + fmt::format(", YaRN by {} from {}, betas {} and {}{}, magnitude {}", scaling.factor,
                                scaling.original_context, scaling.beta_fast, scaling.beta_slow,
                                scaling.rounds ? "" : " not rounded", scaling.magnitude);
    case RopeScaling::Kind::long_rope:
      return text +
             fmt::format(", LongRoPE from {}, magnitude {}", scaling.original_context, scaling.magnitude);
  }
  return text;
}

bool attends_alike(const LayerConfig& a, const LayerConfig& b) {
  return a.is_delta_net == b.is_delta_net && a.is_short_conv == b.is_short_conv && a.is_mamba == b.is_mamba &&
         a.is_only_ffn == b.is_only_ffn && a.window == b.window && a.rope == b.rope &&
         a.has_temperature == b.has_temperature;
}

/// The layers of some kind, e.g. "0, 2, 4" or "all".
template <class IsOfKind>
std::string list_layers(const ModelConfig& config, const IsOfKind& is_of_kind) {
  std::vector<int32_t> layers;
  for (int32_t layer = 0; layer < std::ssize(config.layers); ++layer) {
    if (is_of_kind(layer)) layers.push_back(layer);
  }
  return layers.size() == config.layers.size() ? "all" : fmt::format("{}", fmt::join(layers, ", "));
}

/// Each once, the first layer's first.
std::vector<LayerHeads> kinds_of_heads(const ModelConfig& config) {
  std::vector<LayerHeads> kinds;
  for (int32_t layer = 0; layer < std::max(1, config.num_layers); ++layer) {
    if (std::ranges::count(kinds, config.heads(layer)) == 0) kinds.push_back(config.heads(layer));
  }
  return kinds;
}

/// Shapes of a delta net as people say them.
std::string describe(const DeltaNetShape& shape) {
  if (shape.decays_rows)
    return fmt::format("Kimi delta attention, {} heads of {}, convolution over {} tokens", shape.key_heads,
                       shape.key_size, shape.conv_size);
  return fmt::format(
      "gated delta nets, {} key heads of {}, {} value heads of {}{}, convolution over {} tokens",
      shape.key_heads, shape.key_size, shape.value_heads, shape.value_size, shape.in_turn ? " in turn" : "",
      shape.conv_size);
}

std::string describe_mamba(const DeltaNetShape& shape) {
  return fmt::format("Mamba-2, {} heads of {} in {} groups, states of {}, convolution over {} tokens",
                     shape.value_heads, shape.value_size, shape.key_heads, shape.key_size, shape.conv_size);
}

std::string describe(const LayerConfig& layer) {
  std::string text = "full";
  if (layer.window)
    text = fmt::format("{} of {}", layer.window.chunked ? "chunks" : "window", layer.window.keys);
  if (layer.has_temperature) text += ", temperature by position";
  if (layer.rope == LayerConfig::kNoRope) return text + ", no positions";
  return text + fmt::format(", RoPE {}", layer.rope);
}

std::string_view describe(const Architecture& architecture) {
  constexpr std::string_view kGates[] = {"SwiGLU", "GeGLU (tanh)", "GeGLU", "clamped SwiGLU", "ReGLU"};
  if (architecture.has_gate) return kGates[static_cast<size_t>(architecture.gate)];
  if (architecture.activation == Activation::Kind::xielu) return "xIELU";
  if (architecture.activation == Activation::Kind::relu_squared) return "squared ReLU";
  return architecture.activation == Activation::Kind::gelu ? "GELU" : "GELU (tanh)";
}

std::string describe_feed_forward(const ModelConfig& config) {
  const std::string_view kind = describe(config.architecture);
  if (!config.is_moe()) return fmt::format("{} of {}", kind, config.ffn_size);
  const std::string experts = fmt::format("{} of {} an expert", kind, config.expert_ffn_size);
  if (config.num_expert_layers() == config.num_layers || config.ffn_size == 0) return experts;
  std::string dense = fmt::format("{}; {} in dense layers", experts, config.ffn_size);
  if (config.num_dense_layers > 0) dense += fmt::format(", the first {}", config.num_dense_layers);
  if (config.expert_period > 1) dense += fmt::format(", all but every one of {}", config.expert_period);
  return dense;
}

std::string describe(const ExpertChoice& choice) {
  std::string text = choice.score == ExpertScore::sigmoid ? "sigmoid" : "softmax";
  if (choice.normalise) text += ", normalised over those chosen";
  if (choice.scale != 1.0f) text += fmt::format(", times {}", choice.scale);
  if (choice.groups == 1) return text;
  return text + fmt::format(", in {} of {} groups by their best {}", choice.groups_used, choice.groups,
                            choice.group_best);
}

std::string_view describe(QkNorm norm) {
  if (norm == QkNorm::row) return "all heads together";
  return norm == QkNorm::rotated_head ? "each head that is rotated, without weights" : "each head";
}

std::string describe_norms(const ModelConfig& config) {
  const Architecture& architecture = config.architecture;
  constexpr std::string_view kPlacements[] = {"before", "behind", "before and behind"};
  return fmt::format("{} {} {}, epsilon {}", architecture.norm == NormKind::rms ? "RMS" : "layer",
                     kPlacements[static_cast<size_t>(architecture.norm_placement)],
                     config.parallel_blocks ? "both blocks together" : "each block", config.norm_eps);
}

}  // namespace

std::vector<ConfigFact> config_facts(const ModelConfig& config) {
  std::vector<ConfigFact> facts;
  const auto add = [&](std::string name, const auto& value) {
    facts.push_back({std::move(name), fmt::format("{}", value)});
  };
  const auto add_unless = [&](float usual, std::string name, float value) {
    if (value != usual) add(std::move(name), value);
  };
  add("architecture", config.architecture.name);
  add("vocabulary", config.vocab_size);
  if (!config.suppressed_tokens.empty()) add("suppressed tokens", config.suppressed_tokens.size());
  add("context length", config.context_length);
  add("hidden size", config.hidden_size);
  add("layers", config.num_layers);
  if (config.is_latent()) {
    const LatentAttention& latent = config.latent;
    add("heads",
        fmt::format("{}, queries of {}, values of {}", config.num_heads, latent.key_size, latent.value_size));
    add("latent attention",
        fmt::format("rank {} for keys and values, {} in the cache with the rotated key; {}", latent.kv_rank,
                    config.head_size,
                    latent.q_rank > 0 ? fmt::format("rank {} for queries", latent.q_rank)
                                      : "queries without a rank"));
    if (const Indexer& indexer = config.indexer; indexer.most_chosen > 0)
      add("indexer, " + list_layers(config, [&](int32_t layer) { return config.has_indexer(layer); }),
          fmt::format("{} heads of {} choose {} keys a query", indexer.heads, indexer.key_size,
                      indexer.most_chosen));
  } else {
    for (const LayerHeads& kind : kinds_of_heads(config)) {
      const std::string text =
          fmt::format("{} of {}, {} for keys and values", config.num_heads, kind.size, kind.kv_heads);
      const auto has_heads = [&](int32_t layer) { return config.heads(layer) == kind; };
      config.has_like_heads() ? add("heads", text) : add("heads, " + text, list_layers(config, has_heads));
    }
  }
  add("feed-forward", describe_feed_forward(config));
  if (config.is_moe()) {
    add("experts", fmt::format("{} of {}", config.num_experts_used, config.num_experts));
    add("choice of experts", describe(config.expert_choice));
    if (config.expert_latent_size > 0) add("latent size of experts", config.expert_latent_size);
    if (config.architecture.expert_weights_input) add("weights of experts", "of what they are given");
  }
  if (config.shared_ffn_size > 0) {
    add("shared experts", fmt::format("{} together{}{}", config.shared_ffn_size,
                                      config.architecture.shared_gate ? ", gated" : "",
                                      config.expert_scale() != 1.0f ? ", averaged with the others" : ""));
  }
  add("norms", describe_norms(config));
  if (config.architecture.qk_norm != QkNorm::none) {
    add("norms of queries and keys",
        fmt::format("{}{}", describe(config.architecture.qk_norm),
                    config.architecture.norms_last ? ", behind the rotation" : ""));
  }
  if (config.architecture.norms_values) add("norms of values", "each head, without weights");
  if (std::ranges::count(config.layers, true, &LayerConfig::values_are_keys) > 0)
    add("values are keys before their norm",
        list_layers(config, [&](int32_t layer) { return config.values_are_keys(layer); }));
  if (config.num_layers > 0 && config.shares_kv(config.num_layers - 1))
    add("keys and values of earlier layers",
        list_layers(config, [&](int32_t layer) { return config.shares_kv(layer); }));
  if (config.layer_input_size > 0) add("inputs of layers by the token", config.layer_input_size);
  if (config.num_streams > 1)
    add("residual streams", fmt::format("{}, LAuReL of rank {}", config.num_streams, config.laurel_rank));
  std::vector<float> cuts;  // each once
  for (const LayerConfig& layer : config.layers)
    if (layer.gate_cut && std::ranges::count(cuts, *layer.gate_cut) == 0) cuts.push_back(*layer.gate_cut);
  for (const float cut : cuts)
    add(fmt::format("gates {} deviations above their mean alone", cut),
        list_layers(config, [&](int32_t layer) { return config.layer(layer).gate_cut == cut; }));
  for (size_t i = 0; i < config.ropes.size(); ++i)
    add(fmt::format("RoPE {}", i), describe(config.ropes[i], config.rotary_size_of(config.ropes[i])));
  std::vector<LayerConfig> kinds;
  for (const LayerConfig& layer : config.layers) {
    const auto is_alike = [&](const LayerConfig& kind) { return attends_alike(kind, layer); };
    if (std::ranges::none_of(kinds, is_alike)) kinds.push_back(layer);
  }
  for (const LayerConfig& kind : kinds) {
    std::string what = fmt::format("attention, {}", describe(kind));
    if (kind.is_delta_net) what = describe(config.delta_net);
    if (kind.is_mamba) what = describe_mamba(config.delta_net);
    if (kind.is_only_ffn) what = "feed-forward alone";
    if (kind.is_short_conv) what = fmt::format("short convolutions over {} tokens", config.conv_size);
    add(what, list_layers(config, [&](int32_t layer) { return attends_alike(config.layer(layer), kind); }));
  }
  if (config.architecture.gates_heads) add("gates of attention", "each head, by sigmoid");
  const std::vector<LayerHeads> heads = kinds_of_heads(config);
  add("attention scale", heads.front().scale);
  for (size_t i = 1; i < heads.size(); ++i) {
    if (heads[i].scale != heads.front().scale)
      add(fmt::format("attention scale of heads of {}", heads[i].size), heads[i].scale);
  }
  if (config.architecture.attn_sinks) add("attention sinks", "one a head");
  add_unless(0.0f, "attention cap", config.attention_cap);
  if (config.temperature.scale > 0.0f) {
    add("attention temperature", fmt::format("grows by {} with the logarithm of {} positions",
                                             config.temperature.scale, config.temperature.length));
  }
  add_unless(1.0f, "embedding scale", config.embedding_scale);
  add_unless(1.0f, "residual scale", config.residual_scale);
  add_unless(1.0f, "logit scale", config.logit_scale);
  add_unless(0.0f, "logit cap", config.logit_cap);
  return facts;
}

}  // namespace minfer
