#include "models/decoder/config/config.h"

#include <cmath>
#include <limits>
#include <utility>

#include <fmt/ranges.h>

#include "models/decoder/config/config_heads.h"
#include "models/decoder/config/config_keys.h"
#include "models/decoder/config/eagle_head.h"
#include "models/gguf/printable.h"

namespace minfer {
namespace {

/// Magnitude by rope.scaling.yarn_attn_factor, which converters write where a model's own configuration states attention_factor in place
/// of the formula; else by the formula. They write attn_factor to the same key, which multiplies the formula's and is 1 in known models
/// (Rnj-1).
float read_yarn_magnitude(const KeyReader& keys, const Architecture& architecture, float factor) {
  constexpr std::string_view kStated = "rope.scaling.yarn_attn_factor";
  constexpr std::string_view kStatedBefore = "rope.scaling.attn_factor";
  if (const float stated = keys.positive_float(kStated, 1.0); stated != 1.0f) return stated;
  if (architecture.states_magnitude && keys.has(kStatedBefore)) return keys.positive_float(kStatedBefore);
  return yarn_magnitude(factor, keys.positive_float(kStatedBefore, 1.0),
                        keys.float_in_range("rope.scaling.yarn_log_multiplier", 0.0, 0.0));
}

/// Reads DeepSeek's key for YaRN: a tenth of mscale_all_dim, which scales the scores of whole heads. mscale scales the rotated elements
/// relative to it; all models have the same mscale, and there is no key for it.
void read_latent_yarn(const KeyReader& keys, RopeScaling& scaling) {
  constexpr std::string_view kMultiplier = "rope.scaling.yarn_log_multiplier";
  if (!keys.has(kMultiplier)) return;
  const float growth = 1.0f + keys.float_in_range(kMultiplier, 0.0, std::nullopt, 100.0) *
                                  std::log(std::max(1.0f, scaling.factor));
  scaling.magnitude = 1.0f;
  scaling.attention_factor = growth * growth;
}

RopeScaling read_yarn(const KeyReader& keys, const ModelConfig& config) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::yarn;
  scaling.factor = keys.positive_float("rope.scaling.factor");
  scaling.original_context = keys.positive("rope.scaling.original_context_length", config.context_length);
  scaling.magnitude = read_yarn_magnitude(keys, config.architecture, scaling.factor);
  scaling.beta_fast = keys.positive_float("rope.scaling.yarn_beta_fast", 32.0);
  scaling.beta_slow = keys.positive_float("rope.scaling.yarn_beta_slow", 1.0);
  const std::string extrapolation = keys.full_key("rope.scaling.yarn_ext_factor");
  if (const double found = keys.file().get_float(extrapolation).value_or(1.0); found != 1.0) {
    fail<FileError>("{}: {} is {}: only 1 is supported", keys.file().name(), extrapolation, found);
  }
  return scaling;
}

/// Factors for contexts up to the original one and beyond are tensors, the magnitude a key (Ding et al. 2024, "LongRoPE"; Phi-3).
RopeScaling read_long_rope(const KeyReader& keys) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::long_rope;
  scaling.original_context = keys.positive("rope.scaling.original_context_length");
  scaling.magnitude = keys.positive_float("rope.scaling.attn_factor", 1.0);
  return scaling;
}

RopeScaling read_rope_scaling(const KeyReader& keys, const ModelConfig& config) {
  if (keys.file().find_tensor("rope_factors_long.weight") != nullptr) return read_long_rope(keys);
  const std::string type_key = keys.full_key("rope.scaling.type");
  // A factor without a type is linear; files from before rope.scaling.* call it scale_linear.
  const std::string_view type = keys.file().get_string(type_key).value_or("linear");
  if (type == "none" || type == "linear") {
    RopeScaling scaling;
    scaling.magnitude = keys.positive_float("rope.scaling.attn_factor", 1.0);
    if (type == "none") return scaling;
    scaling.factor =
        keys.positive_float("rope.scaling.factor", keys.positive_float("rope.scale_linear", 1.0));
    if (scaling.factor != 1.0f) scaling.kind = RopeScaling::Kind::linear;
    return scaling;
  }
  if (type == "yarn") {
    RopeScaling scaling = read_yarn(keys, config);
    if (config.is_latent()) read_latent_yarn(keys, scaling);
    return scaling;
  }
  fail<FileError>("{}: {} is \"{}\", expected none, linear or yarn", keys.file().name(), type_key,
                  printable(type));
}

/// The number of tokens. Ids of the tokeniser index the embedding table, and those sampled from the rows of
/// the output the tokeniser, so tokeniser and tables must agree.
int32_t read_vocab_size(const KeyReader& keys) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  const GgufFile::Entry* tokens = keys.file().find(kTokens);
  if (tokens == nullptr) return keys.positive("vocab_size");
  if (tokens->count < 1 || tokens->count > kMaxDimension) {
    fail<FileError>("{}: {} has {} elements, expected 1 to {}", keys.file().name(), kTokens, tokens->count,
                    kMaxDimension);
  }
  const HostTensor* table = keys.file().find_tensor("token_embd.weight");
  if (table != nullptr && std::cmp_not_equal(table->rows, tokens->count)) {
    fail<FileError>("{}: tensor token_embd.weight: shape {}, expected {} rows from {}", keys.file().name(),
                    table->shape(), tokens->count, kTokens);
  }
  return static_cast<int32_t>(tokens->count);
}

/// Tokens that are never to be sampled, such as those that stand for parts of images.
std::vector<int32_t> read_suppressed_tokens(const GgufFile& file, int32_t vocab_size) {
  constexpr std::string_view kKey = "tokenizer.ggml.suppress_tokens";
  const GgufFile::Entry* entry = file.find(kKey);
  if (entry != nullptr && std::cmp_greater(entry->count, vocab_size))
    fail<FileError>("{}: {} has {} elements, expected at most the vocabulary's {}", file.name(), kKey,
                    entry->count, vocab_size);
  std::vector<int32_t> tokens;
  for (const int64_t token : file.get_ints(kKey)) {
    if (token < 0 || token >= vocab_size)
      fail<FileError>("{}: {}: token {}, expected one of the vocabulary's {}", file.name(), kKey, token,
                      vocab_size);
    tokens.push_back(static_cast<int32_t>(token));
  }
  return tokens;
}

/// block_count counts layers that predict the tokens behind the next one too, the last ones: they are not run.
int32_t read_num_layers(const KeyReader& keys) {
  const int32_t all = keys.ranged("block_count", 1, kMaxLayers);
  return all - keys.ranged("nextn_predict_layers", 0, all - 1, 0);
}

void read_norm(const KeyReader& keys, ModelConfig& config) {
  constexpr std::string_view kOfRms = "attention.layer_norm_rms_epsilon",
                             kOther = "attention.layer_norm_epsilon";
  NormKind& norm = config.architecture.norm;
  if (config.architecture.rms_if_stated && keys.has(kOfRms)) norm = NormKind::rms;
  const bool has_other_name = config.architecture.has_single_blocks && !keys.has(kOfRms);
  config.norm_eps = keys.positive_float(norm == NormKind::rms && !has_other_name ? kOfRms : kOther);
}

/// Numbers of the whole model that multiply or cap something. Without their keys they are what a Llama has.
void read_scales(const KeyReader& keys, ModelConfig& config) {
  config.attention_scale =
      keys.positive_float("attention.scale", static_cast<double>(config.attention_scale));
  config.embedding_scale =
      keys.positive_float("embedding_scale", static_cast<double>(config.embedding_scale));
  config.residual_scale = keys.positive_float("residual_scale", 1.0);
  config.logit_scale = keys.positive_float("logit_scale", 1.0);
  if (config.architecture.divides_by_logit_scale) config.logit_scale = 1.0f / config.logit_scale;
  config.attention_cap = keys.float_in_range("attn_logit_softcapping", 0.0, 0.0);
  config.logit_cap = keys.float_in_range("final_logit_softcapping", 0.0, 0.0);
}

/// Which layers have the window: as the file says, by an array or by the period of those that have none; empty: as the family has it.
std::vector<bool> layers_with_window(const KeyReader& keys, const ModelConfig& config) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  if (!keys.has(kPattern)) return {};
  if (keys.is_array(kPattern)) return keys.flags_of_layers(kPattern, config.num_layers);
  return all_but_every(keys.ranged(kPattern, 2, kMaxLayers), config.num_layers);
}

void read_temperature(const KeyReader& keys, ModelConfig& config) {
  const Architecture& family = config.architecture;
  constexpr std::string_view kScale = "attention.temperature_scale";
  config.temperature.scale = keys.float_in_range(kScale, 0.0, static_cast<double>(family.temperature_scale));
  if (family.temperature_by_yarn) {
    const int32_t original = config.ropes.front().scaling.original_context;
    if (original == 0 && keys.has(kScale) && config.temperature.scale > 0.0f)
      keys.refuse(kScale, "is {}: not supported without YaRN", config.temperature.scale);
    config.temperature = {original > 0 ? config.temperature.scale : 0.0f, std::max(1, original), 0};
    return;
  }
  config.temperature.length =
      keys.ranged("attention.temperature_length", 1, kMaxDimension, std::max(1, family.temperature_length));
  if (family.temperature_length == 0 && config.temperature.scale > 0.0f)
    fail<FileError>("{}: {}: not supported with architecture {}", keys.file().name(), keys.full_key(kScale),
                    family.name);
}

/// Layers, rotary tables and what follows from the family.
void read_layers(const KeyReader& keys, ModelConfig& config) {
  const Architecture& architecture = config.architecture;
  config.ropes.front() = {.base = keys.float_in_range("rope.freq_base", 1.001, 10000.0),
                          .scaling = read_rope_scaling(keys, config)};
  read_temperature(keys, config);
  if (architecture.window_period == 0) return apply_family(config, 0);
  const auto fallback =
      architecture.needs_window ? std::nullopt : std::optional<int64_t>(architecture.usual_window);
  const int32_t window =
      keys.ranged("attention.sliding_window", architecture.needs_window ? 1 : 0, kMaxDimension, fallback);
  apply_family(config, window, layers_with_window(keys, config));
  constexpr std::string_view kBase = "rope.freq_base_swa";
  RopeConfig& of_windows = config.ropes.back();
  const float base = keys.float_in_range(kBase, 1.001, static_cast<double>(of_windows.base));
  if (config.ropes.size() > 1) {
    of_windows.base = base;
  } else if (!architecture.own_window_rope && base != of_windows.base) {
    keys.refuse(kBase, "is {}, expected {}, the base of all layers of architecture {}", base, of_windows.base,
                architecture.name);
  }
}

/// Sets the traits that the family's row leaves to the file's tensors and keys.
void read_variant(const KeyReader& keys, ModelConfig& config) {
  Architecture& architecture = config.architecture;
  const auto has_tensor = [&](std::string_view name) { return keys.file().find_tensor(name) != nullptr; };
  if (architecture.qk_norm == QkNorm::head_if_there)
    architecture.qk_norm = has_tensor("blk.0.attn_q_norm.weight") ? QkNorm::head : QkNorm::none;
  const ParallelBlocks parallel = architecture.parallel_blocks;
  config.parallel_blocks =
      parallel == ParallelBlocks::always ||
      (parallel == ParallelBlocks::if_no_ffn_norm && !has_tensor("blk.0.ffn_norm.weight"));
  // Pairs that turn by time, height and width, which of text are one position: without height there are none.
  const std::vector<int64_t> sections = keys.file().get_ints(keys.full_key("rope.dimension_sections"));
  if (architecture.halves_with_sections && sections.size() > 1 && sections[0] > 0 && sections[1] > 0)
    architecture.rope_pairing = RopePairing::halves;
  constexpr std::string_view kPositions = "rope.scaling.finetuned";
  if (architecture.may_lack_positions && keys.has(kPositions) && !keys.flag(kPositions))
    architecture.no_rope_period = 1;
}

constexpr std::string_view kSharedLayers = "attention.shared_kv_layers";
constexpr std::string_view kFfnSize = "feed_forward_length";

/// The rank of LAuReL has no key.
void read_streams(const KeyReader& keys, ModelConfig& config) {
  config.num_streams = keys.ranged("altup.num_inputs", 2, kMaxStreams);
  keys.ranged("altup.active_idx", 0, 0);
  constexpr const char* kTensor = "blk.0.laurel_l.weight";
  const HostTensor* laurel = keys.file().find_tensor(kTensor);
  if (laurel == nullptr) fail<FileError>("{}: tensor {} is missing", keys.file().name(), kTensor);
  if (laurel->rows > kMaxDimension)
    fail<FileError>("{}: tensor {}: shape {}, expected at most {} rows", keys.file().name(), kTensor,
                    laurel->shape(), kMaxDimension);
  config.laurel_rank = static_cast<int32_t>(laurel->rows);
}

/// -inf stands for layers whose gates all count.
void read_gate_cuts(const KeyReader& keys, ModelConfig& config) {
  if (!config.architecture.has_streams) return;
  constexpr std::string_view kCuts = "activation_sparsity_scale";
  const std::vector<float> cuts =
      keys.floats_of_layers(kCuts, config.num_layers, -std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < cuts.size(); ++i)
    if (std::isfinite(cuts[i])) config.layers[i].gate_cut = cuts[i];
}

/// Parts that some families alone have.
void read_parts(const KeyReader& keys, ModelConfig& config) {
  if (constexpr std::string_view kCausal = "attention.causal"; keys.has(kCausal) && !keys.flag(kCausal)) {
    keys.refuse(kCausal, "is false: attention to later tokens is not supported");
  }
  constexpr std::string_view kLayerInput = "embedding_length_per_layer_input";
  const bool has_streams = config.architecture.has_streams;
  config.layer_input_size =
      has_streams ? keys.positive(kLayerInput) : keys.ranged(kLayerInput, 0, kMaxDimension, 0);
  if (has_streams) read_streams(keys, config);
  if (config.architecture.has_layer_inputs) return;
  for (const std::string_view key : {kSharedLayers, kLayerInput}) {
    if (const int32_t found = keys.ranged(key, 0, kMaxDimension, 0); found != 0)
      keys.refuse(key, "is {}: not supported with architecture {}", found, config.architecture.name);
  }
}

void read_shared_layers(const KeyReader& keys, ModelConfig& config) {
  const int32_t shared = keys.ranged(kSharedLayers, 0, config.num_layers - 1, 0);
  if (const int32_t alone = share_keys(config, shared); alone >= 0)
    keys.refuse(kSharedLayers, "is {}: no layer before layer {} attends as it does", shared, alone);
}

void read_layer_ffn_sizes(const KeyReader& keys, ModelConfig& config) {
  const Architecture& family = config.architecture;
  if ((!family.has_layer_inputs && !family.has_single_blocks) || config.is_moe()) return;
  const std::vector<int32_t> sizes = ffn_sizes_of_layers(keys, config);
  for (size_t i = 0; i < sizes.size(); ++i)
    config.layers[i].ffn_size = sizes[i] == config.ffn_size ? 0 : sizes[i];
}

/// xIELU's numbers are keys without an architecture, one a layer; p and n are stored before their softplus.
std::vector<Activation> read_activations(const GgufFile& file, const ModelConfig& config) {
  const Activation::Kind kind = config.architecture.activation;
  std::vector<Activation> activations(static_cast<size_t>(config.num_layers), Activation{.kind = kind});
  if (kind != Activation::Kind::xielu) return activations;
  const KeyReader keys(file, "xielu");
  const auto softplus = [](float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); };
  const std::vector<float> positive = keys.floats_of_layers("alpha_p", config.num_layers);
  const std::vector<float> negative = keys.floats_of_layers("alpha_n", config.num_layers);
  const std::vector<float> linear = keys.floats_of_layers("beta", config.num_layers);
  const std::vector<float> eps = keys.floats_of_layers("eps", config.num_layers);
  for (size_t i = 0; i < activations.size(); ++i) {
    activations[i].positive = softplus(positive[i]);
    activations[i].negative = linear[i] + softplus(negative[i]);
    activations[i].linear = linear[i];
    activations[i].eps = eps[i];
  }
  return activations;
}

void read_groups(const KeyReader& keys, ModelConfig& config) {
  ExpertChoice& choice = config.expert_choice;
  choice.groups = keys.ranged("expert_group_count", 1, kMaxExpertGroups, 1);
  choice.groups_used = keys.ranged("expert_group_used_count", 1, choice.groups, choice.groups);
  const int32_t of_group = config.num_experts / choice.groups;
  const int32_t least = choice.groups > 1 ? choice.group_best : 1;
  if (config.num_experts % choice.groups != 0 || of_group < least) {
    keys.refuse("expert_group_count", "is {}, expected groups of one size, at least {}, of {} = {}",
                choice.groups, least, keys.full_key("expert_count"), config.num_experts);
  }
  if (of_group * choice.groups_used < config.num_experts_used) {
    keys.refuse("expert_group_used_count", "is {}: groups of {} experts have fewer than {} = {}",
                choice.groups_used, of_group, keys.full_key("expert_used_count"), config.num_experts_used);
  }
}

/// The choice of experts, from the file's keys, else from the family.
void read_choice(const KeyReader& keys, ModelConfig& config) {
  enum GatingFunction : uint8_t { by_family, softmax, sigmoid, softmax_of_chosen };  // GGUF's numbers
  ExpertChoice& choice = config.expert_choice;
  choice = config.architecture.expert_choice;
  int32_t function = keys.ranged("expert_gating_func", by_family, softmax_of_chosen, by_family);
  // A bias of the choice belongs to sigmoid routing: GLM-4.7-Flash's files say no more.
  const auto is_bias = [](const HostTensor& tensor) { return tensor.name.ends_with(".exp_probs_b.bias"); };
  if (function == by_family && !config.architecture.biases_softmax &&
      std::ranges::any_of(keys.file().tensors(), is_bias))
    function = sigmoid;
  if (function != by_family) choice.score = function == sigmoid ? ExpertScore::sigmoid : ExpertScore::softmax;
  if (keys.has("expert_weights_norm")) choice.normalise = keys.flag("expert_weights_norm");
  if (function == softmax_of_chosen) choice.normalise = true;
  choice.scale = keys.positive_float("expert_weights_scale", 1.0);
  read_groups(keys, config);
}

void read_shared_experts(const KeyReader& keys, ModelConfig& config) {
  const int64_t most = std::min<int64_t>(kMaxExperts, kMaxDimension / config.expert_ffn_size);
  const int32_t count = keys.ranged("expert_shared_count", 0, most, config.architecture.shared_experts);
  const bool has_gate = config.architecture.shared_gate;
  const auto size = has_gate ? std::nullopt : std::optional<int64_t>(int64_t{count} * config.expert_ffn_size);
  config.shared_ffn_size =
      keys.ranged("expert_shared_feed_forward_length", has_gate ? 1 : 0, kMaxDimension, size);
}

void read_experts(const KeyReader& keys, ModelConfig& config) {
  const Architecture& architecture = config.architecture;
  config.num_experts_used = keys.ranged("expert_used_count", 1, config.num_experts);
  config.num_dense_layers = keys.ranged("leading_dense_block_count", 0, config.num_layers - 1, 0);
  constexpr std::string_view kPeriod = "interleave_moe_layer_step";
  config.expert_period = keys.ranged(kPeriod, 1, config.num_layers, 1);
  if (config.num_layers / config.expert_period * config.expert_period <= config.num_dense_layers) {
    keys.refuse(kPeriod, "is {}: no layer after the {} dense ones, of {} in all, has experts",
                config.expert_period, config.num_dense_layers, config.num_layers);
  }
  config.expert_ffn_size =
      keys.same_in_all_layers(architecture.expert_ffn_key, config.num_layers, kMaxDimension);
  config.expert_latent_size = keys.ranged("moe_latent_size", 0, kMaxDimension, 0);
  read_shared_experts(keys, config);
  read_choice(keys, config);
}

void read_feed_forward(const KeyReader& keys, ModelConfig& config) {
  const Architecture& architecture = config.architecture;
  config.num_experts = keys.ranged("expert_count", 0, kMaxExperts, 0);
  if (config.is_moe() ? architecture.expert_layers == ExpertLayers::never
                      : architecture.expert_layers == ExpertLayers::always) {
    keys.refuse("expert_count", "is {}, expected {} of architecture {}", config.num_experts,
                config.is_moe() ? "none" : "at least 1", architecture.name);
  }
  if (config.is_moe()) read_experts(keys, config);
  if (architecture.has_layer_inputs && config.is_moe()) {
    config.shared_ffn_size = keys.same_in_all_layers(kFfnSize, config.num_layers, kMaxDimension);
    if (config.num_dense_layers > 0 || config.expert_period > 1) config.ffn_size = config.shared_ffn_size;
  } else if (architecture.has_layer_inputs || (architecture.has_single_blocks && !config.is_moe())) {
    config.ffn_size = std::ranges::max(ffn_sizes_of_layers(keys, config));
  } else if (!config.is_moe() || config.num_dense_layers > 0 || config.expert_period > 1) {
    config.ffn_size = keys.same_in_all_layers(kFfnSize, config.num_layers, kMaxDimension);
  }
  if (!architecture.has_gate) config.activations = read_activations(keys.file(), config);
}

/// Adds the first of the layers that only predict further tokens, if the file has it. It attends to all positions, by the model's heads.
void add_draft_layer(const KeyReader& keys, ModelConfig& config) {
  const Architecture& family = config.architecture;
  const auto has = [&](std::string_view part) {
    return keys.file().find_tensor(fmt::format("blk.{}.{}.weight", config.num_layers, part)) != nullptr;
  };
  const bool is_supported = family.has_gate && !family.has_single_blocks &&
                            family.norm_placement == NormPlacement::before && family.norm == NormKind::rms &&
                            !config.parallel_blocks && config.layer_input_size == 0 && !family.has_indexer &&
                            config.ropes.size() == 1 &&
                            windows_of(config, std::numeric_limits<int32_t>::max()).empty();
  if (!is_supported || !has("nextn.eh_proj") || !has("attn_norm")) return;
  config.has_draft_layer = true;
  config.layers.push_back({.has_experts = has("ffn_gate_inp")});
}

}  // namespace

std::vector<AttentionWindow> windows_of(const ModelConfig& config, int32_t max_positions) {
  std::vector<AttentionWindow> windows;
  for (const LayerConfig& layer : config.layers) {
    if (layer.window && layer.window.keys < max_positions && std::ranges::count(windows, layer.window) == 0)
      windows.push_back(layer.window);
  }
  return windows;
}

std::vector<AttentionKind> attention_kinds_of(const ModelConfig& config, int32_t max_positions) {
  std::vector<AttentionKind> kinds;
  for (int32_t layer = 0; layer < config.num_all_layers(); ++layer) {
    const LayerHeads heads = config.heads(layer);
    const bool of_eagle = layer == config.num_layers && config.eagle;
    const AttentionWindow window =
        of_eagle ? config.eagle->config.layer(0).window : config.layer(layer).window;
    const int32_t query_heads = of_eagle ? config.eagle->config.num_heads : config.num_heads;
    const AttentionKind kind{heads.kv_heads, heads.size,
                             window.keys < max_positions ? window : AttentionWindow{},
                             query_heads == config.num_heads ? 0 : query_heads};
    if (std::ranges::count(kinds, kind) == 0) kinds.push_back(kind);
  }
  return kinds;
}

ModelConfig read_config(const GgufFile& file, bool draft_layer) {
  const std::string_view name = file.require_string("general.architecture");
  if (name == EagleHead::kArchitecture)
    fail<FileError>(
        "{}: general.architecture is {}, a head that makes drafts for another model: expected as "
        "--speculative-model",
        file.name(), name);
  return read_config(file, find_architecture(name), draft_layer);
}

ModelConfig read_config(const GgufFile& file, const Architecture& family, bool draft_layer) {
  ModelConfig config;
  config.architecture = family;
  const KeyReader keys(file, config.architecture.name);
  config.name = file.get_string("general.name").value_or(file.name());
  config.vocab_size = read_vocab_size(keys);
  config.suppressed_tokens = read_suppressed_tokens(file, config.vocab_size);
  config.context_length = keys.positive("context_length");
  config.hidden_size = keys.positive("embedding_length");
  config.num_layers = read_num_layers(keys);
  read_variant(keys, config);
  read_parts(keys, config);
  read_attention(keys, config);
  read_feed_forward(keys, config);
  read_norm(keys, config);
  read_layers(keys, config);
  read_delta_net(keys, config);
  read_indexer(keys, config);
  read_scales(keys, config);
  const bool states_scale = keys.has("attention.scale") || config.architecture.attention_scale > 0.0f;
  read_layer_heads(keys, states_scale, config);
  read_shared_layers(keys, config);
  read_layer_ffn_sizes(keys, config);
  read_gate_cuts(keys, config);
  read_layer_rotation(keys, config);
  if (draft_layer) add_draft_layer(keys, config);
  return config;
}

}  // namespace minfer
