#include "models/decoder/config/architecture.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/ranges.h>

#include "models/decoder/config/config.h"
#include "models/gguf/printable.h"

namespace minfer {
namespace {

/// Embeddings times the root of their size. Queries are scaled by the root of the head size but in the 27B models of Gemma 2 and 3, whose
/// files do not say so (google/gemma_pytorch, gemma/config.py).
void adjust_gemma(ModelConfig& config) {
  constexpr int32_t kLayersOf27B[] = {46, 62};
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  if (std::ranges::count(kLayersOf27B, config.num_layers) > 0) {
    const int32_t query_size = config.hidden_size / config.num_heads;
    config.attention_scale = 1.0f / std::sqrt(static_cast<float>(query_size));
  }
}

/// Embeddings alone are scaled as those of the others (Gemma 3n and 4).
void adjust_gemma4(ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
}

/// YaRN's ramp begins and ends between two frequencies (transformers' "truncate": false), which files do not say.
void adjust_gpt_oss(ModelConfig& config) {
  config.ropes.front().scaling.rounds = false;
}

/// A group of experts is worth its best one in V2, its two best ones in V3, which has scores of its own.
void adjust_deepseek(ModelConfig& config) {
  config.expert_choice.group_best = config.expert_choice.score == ExpertScore::sigmoid ? 2 : 1;
}

/// Dense layers, which are the first ones, have positions even if they have no window.
void adjust_cohere_experts(ModelConfig& config) {
  for (int32_t layer = 0; layer < config.num_dense_layers; ++layer)
    config.layers[static_cast<size_t>(layer)].rope = 0;
}

/// The model of 128 experts has no QK norm, which its files do not say (llama.cpp, src/models/llama4.cpp).
void adjust_llama4(ModelConfig& config) {
  if (config.num_experts == 128) config.architecture.qk_norm = QkNorm::none;
}

constexpr std::array kArchitectures{
    // Llama, Mistral and (with experts) Mixtral; their q and k rows are stored for interleaved rotation.
    Architecture{.name = "llama",
                 .rope_pairing = RopePairing::interleaved,
                 .expert_layers = ExpertLayers::if_counted,
                 .expert_ffn_key = "feed_forward_length",
                 .window_period = 1},
    Architecture{.name = "qwen2", .qkv_bias = true},
    Architecture{.name = "qwen3", .qk_norm = QkNorm::head},
    Architecture{.name = "qwen3moe", .qk_norm = QkNorm::head, .expert_layers = ExpertLayers::always},
    Architecture{.name = "olmoe",
                 .qk_norm = QkNorm::row,
                 .expert_layers = ExpertLayers::always,
                 .expert_ffn_key = "feed_forward_length",
                 .expert_choice = {.normalise = false}},
    Architecture{.name = "qwen2moe",
                 .qkv_bias = true,
                 .expert_layers = ExpertLayers::always,
                 .expert_choice = {.normalise = false},
                 .shared_gate = true},
    Architecture{.name = "gpt-oss",
                 .qkv_bias = true,
                 .attn_sinks = true,
                 .expert_layers = ExpertLayers::always,
                 .ffn_norm_tensor = "post_attention_norm",
                 .gate = GateActivation::clamped_swiglu,
                 .window_period = 2,
                 .needs_window = true,
                 .adjust = adjust_gpt_oss},
    // GLM-4.5 and GLM-4.6.
    Architecture{.name = "glm4moe",
                 .qk_norm = QkNorm::head_if_there,
                 .expert_layers = ExpertLayers::always,
                 .expert_choice = {.score = ExpertScore::sigmoid, .normalise = false},
                 .choice_bias = true,
                 .ffn_norm_tensor = "post_attention_norm"},
    Architecture{.name = "granitemoe",
                 .rope_pairing = RopePairing::interleaved,
                 .expert_layers = ExpertLayers::always,
                 .expert_ffn_key = "feed_forward_length",
                 .divides_by_logit_scale = true},
    Architecture{.name = "gemma", .gate = GateActivation::gelu_tanh, .adjust = adjust_gemma},
    Architecture{.name = "gemma2",
                 .norm_placement = NormPlacement::both,
                 .gate = GateActivation::gelu_tanh,
                 .window_period = 2,
                 .usual_window = 4096,
                 .adjust = adjust_gemma},
    Architecture{.name = "gemma3",
                 .qk_norm = QkNorm::head,
                 .norm_placement = NormPlacement::both,
                 .gate = GateActivation::gelu_tanh,
                 .window_period = 6,
                 .own_window_rope = true,
                 .window_rope_base = 10000.0f,
                 .adjust = adjust_gemma},
    // E2B and E4B.
    Architecture{.name = "gemma3n",
                 .qk_norm = QkNorm::head,
                 .norms_values = true,
                 .has_layer_inputs = true,
                 .has_streams = true,
                 .attention_scale = 1.0f,
                 .norm_placement = NormPlacement::both,
                 .gate = GateActivation::gelu_tanh,
                 .window_period = 5,
                 .needs_window = true,
                 .own_window_rope = true,
                 .window_rope_base = 10000.0f,
                 .adjust = adjust_gemma4},
    Architecture{.name = "gemma4",
                 .qk_norm = QkNorm::head,
                 .norms_values = true,
                 .may_lack_values = true,
                 .has_layer_inputs = true,
                 .scales_layers = true,
                 .attention_scale = 1.0f,
                 .expert_layers = ExpertLayers::if_counted,
                 .expert_ffn_key = "expert_feed_forward_length",
                 .norm_placement = NormPlacement::both,
                 .gate = GateActivation::gelu_tanh,
                 .window_period = 6,
                 .needs_window = true,
                 .own_window_rope = true,
                 .window_rope_base = 10000.0f,
                 .adjust = adjust_gemma4},
    // Phi-3 and Phi-4.
    Architecture{.name = "phi3", .window_period = 1},
    Architecture{.name = "smollm3", .rope_pairing = RopePairing::interleaved, .no_rope_period = 4},
    // OLMo 2, and OLMo 3 with windows.
    Architecture{.name = "olmo2",
                 .qk_norm = QkNorm::row,
                 .norm_placement = NormPlacement::after,
                 .window_period = 4,
                 .own_window_rope = true,
                 .states_magnitude = true},
    Architecture{.name = "granite",
                 .rope_pairing = RopePairing::interleaved,
                 .may_lack_positions = true,
                 .divides_by_logit_scale = true},
    Architecture{.name = "glm4",
                 .rope_pairing = RopePairing::interleaved,
                 .halves_with_sections = true,
                 .norm_placement = NormPlacement::both},
    Architecture{.name = "command-r",
                 .rope_pairing = RopePairing::interleaved,
                 .qk_norm = QkNorm::head_if_there,
                 .norm = NormKind::layer,
                 .parallel_blocks = ParallelBlocks::always},
    // Command-R7B.
    Architecture{.name = "cohere2",
                 .rope_pairing = RopePairing::interleaved,
                 .norm = NormKind::layer,
                 .parallel_blocks = ParallelBlocks::always,
                 .window_period = 4,
                 .needs_window = true,
                 .no_rope_without_window = true},
    // Command A+ and North.
    Architecture{.name = "cohere2moe",
                 .rope_pairing = RopePairing::interleaved,
                 .expert_layers = ExpertLayers::always,
                 .expert_choice = {.score = ExpertScore::sigmoid, .normalise = false},
                 .averages_shared = true,
                 .norm = NormKind::layer,
                 .rms_if_stated = true,
                 .parallel_blocks = ParallelBlocks::always,
                 .window_period = 4,
                 .needs_window = true,
                 .no_rope_without_window = true,
                 .adjust = adjust_cohere_experts},
    Architecture{.name = "starcoder2", .norm = NormKind::layer, .has_gate = false, .window_period = 1},
    Architecture{.name = "stablelm",
                 .qk_norm = QkNorm::head_if_there,
                 .norm = NormKind::layer,
                 .parallel_blocks = ParallelBlocks::if_no_ffn_norm},
    Architecture{.name = "internlm2", .rope_pairing = RopePairing::interleaved},
    Architecture{.name = "ernie4_5", .rope_pairing = RopePairing::interleaved},
    Architecture{.name = "ernie4_5-moe",
                 .rope_pairing = RopePairing::interleaved,
                 .expert_layers = ExpertLayers::always,
                 .expert_ffn_key = "expert_feed_forward_length",
                 .biases_softmax = true},
    // Ministral 3.
    Architecture{.name = "mistral3",
                 .rope_pairing = RopePairing::interleaved,
                 .expert_layers = ExpertLayers::if_counted,
                 .temperature_by_yarn = true},
    Architecture{.name = "minimax-m2",
                 .qk_norm = QkNorm::row,
                 .expert_layers = ExpertLayers::always,
                 .expert_ffn_key = "expert_feed_forward_length",
                 .expert_choice = {.score = ExpertScore::sigmoid}},
    Architecture{.name = "exaone4",
                 .qk_norm = QkNorm::head,
                 .norm_placement = NormPlacement::after,
                 .window_period = 4,
                 .no_rope_without_window = true},
    // K-EXAONE.
    Architecture{.name = "exaone-moe",
                 .qk_norm = QkNorm::head,
                 .expert_layers = ExpertLayers::always,
                 .expert_ffn_key = "expert_feed_forward_length",
                 .expert_choice = {.score = ExpertScore::sigmoid, .normalise = false},
                 .window_period = 4,
                 .needs_window = true,
                 .no_rope_without_window = true,
                 .adjust = adjust_deepseek},
    Architecture{.name = "dots1",
                 .qk_norm = QkNorm::head,
                 .expert_layers = ExpertLayers::always,
                 .expert_ffn_key = "expert_feed_forward_length",
                 .expert_choice = {.score = ExpertScore::sigmoid, .normalise = false},
                 .adjust = adjust_deepseek},
    // The text parts of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: time, height and width of a text's position are one.
    Architecture{.name = "qwen2vl", .qkv_bias = true},
    Architecture{.name = "qwen3vl", .qk_norm = QkNorm::head},
    Architecture{.name = "qwen3vlmoe",
                 .qk_norm = QkNorm::head,
                 .expert_layers = ExpertLayers::always,
                 .expert_ffn_key = "expert_feed_forward_length"},
    // Hunyuan's models of 0.5B to 7B, and A13B.
    Architecture{.name = "hunyuan-dense", .qk_norm = QkNorm::head, .norms_last = true},
    Architecture{.name = "hunyuan-moe",
                 .qk_norm = QkNorm::head,
                 .norms_last = true,
                 .expert_layers = ExpertLayers::always},
    // Ling and Ring, first and second version.
    Architecture{.name = "bailingmoe",
                 .rope_pairing = RopePairing::interleaved,
                 .expert_layers = ExpertLayers::always,
                 .expert_choice = {.normalise = false}},
    Architecture{.name = "bailingmoe2",
                 .qk_norm = QkNorm::head,
                 .expert_layers = ExpertLayers::always,
                 .expert_choice = {.score = ExpertScore::sigmoid, .normalise = false}},
    Architecture{.name = "seed_oss", .ffn_norm_tensor = "post_attention_norm"},
    // DeepSeek V2, V3 and R1, Kimi K2, Mistral Large 3.
    Architecture{.name = "deepseek2",
                 .rope_pairing = RopePairing::interleaved,
                 .has_latent_attention = true,
                 .expert_layers = ExpertLayers::if_counted,
                 .expert_choice = {.normalise = false},
                 .temperature_by_yarn = true,
                 .adjust = adjust_deepseek},
    // DeepSeek V3.2.
    Architecture{.name = "deepseek32",
                 .rope_pairing = RopePairing::interleaved,
                 .has_latent_attention = true,
                 .has_indexer = true,
                 .expert_layers = ExpertLayers::if_counted,
                 .expert_choice = {.normalise = false},
                 .adjust = adjust_deepseek},
    // GLM-5; 5.2 has indexers in some layers alone.
    Architecture{.name = "glm-dsa",
                 .rope_pairing = RopePairing::interleaved,
                 .has_latent_attention = true,
                 .has_indexer = true,
                 .indexer_pairing = RopePairing::interleaved,
                 .sparse_indexer_context = 1 << 20,
                 .expert_layers = ExpertLayers::if_counted,
                 .expert_choice = {.score = ExpertScore::sigmoid, .normalise = false}},
    // Mistral Small 4.
    Architecture{.name = "mistral4",
                 .rope_pairing = RopePairing::interleaved,
                 .has_latent_attention = true,
                 .expert_layers = ExpertLayers::if_counted,
                 .expert_choice = {.normalise = false},
                 .temperature_scale = 0.1f,
                 .temperature_by_yarn = true},
    // Llama 4's text part, and without experts MobileLLM.
    Architecture{.name = "llama4",
                 .rope_pairing = RopePairing::interleaved,
                 .qk_norm = QkNorm::rotated_head,
                 .expert_layers = ExpertLayers::if_counted,
                 .expert_choice = {.score = ExpertScore::sigmoid, .normalise = false},
                 .shared_experts = 1,
                 .expert_weights_input = true,
                 .window_period = 4,
                 .usual_window = 8192,
                 .has_chunks = true,
                 .no_rope_without_window = true,
                 .temperature_scale = 0.1f,
                 .temperature_length = 8192,
                 .adjust = adjust_llama4},
    // Qwen3-Next.
    Architecture{.name = "qwen3next",
                 .qk_norm = QkNorm::head,
                 .delta_period = 4,
                 .gates_heads = true,
                 .expert_layers = ExpertLayers::always,
                 .shared_gate = true,
                 .ffn_norm_tensor = "post_attention_norm"},
    // Qwen3.5, of text alone.
    Architecture{.name = "qwen35",
                 .qk_norm = QkNorm::head,
                 .delta_period = 4,
                 .values_in_turn = true,
                 .gates_heads = true,
                 .ffn_norm_tensor = "post_attention_norm"},
    Architecture{.name = "qwen35moe",
                 .qk_norm = QkNorm::head,
                 .delta_period = 4,
                 .values_in_turn = true,
                 .gates_heads = true,
                 .expert_layers = ExpertLayers::always,
                 .shared_gate = true,
                 .ffn_norm_tensor = "post_attention_norm"},
    Architecture{.name = "lfm2",
                 .qk_norm = QkNorm::head,
                 .has_short_convs = true,
                 .output_norm_tensor = "token_embd_norm"},
    Architecture{.name = "lfm2moe",
                 .qk_norm = QkNorm::head,
                 .has_short_convs = true,
                 .expert_layers = ExpertLayers::always,
                 .expert_choice = {.score = ExpertScore::sigmoid},
                 .output_norm_tensor = "token_embd_norm"},
    // Granite 4 with Mamba-2 layers.
    Architecture{.name = "granitehybrid",
                 .rope_pairing = RopePairing::interleaved,
                 .has_mamba = true,
                 .expert_layers = ExpertLayers::if_counted,
                 .expert_ffn_key = "feed_forward_length",
                 .may_lack_positions = true,
                 .divides_by_logit_scale = true},
    Architecture{.name = "nemotron_h",
                 .has_mamba = true,
                 .has_single_blocks = true,
                 .has_gate = false,
                 .activation = Activation::Kind::relu_squared,
                 .no_rope_period = 1},
    Architecture{.name = "nemotron_h_moe",
                 .has_mamba = true,
                 .has_single_blocks = true,
                 .expert_layers = ExpertLayers::always,
                 .expert_choice = {.score = ExpertScore::sigmoid},
                 .choice_bias = true,
                 .has_gate = false,
                 .activation = Activation::Kind::relu_squared,
                 .no_rope_period = 1},
    Architecture{.name = "kimi-linear",
                 .has_latent_attention = true,
                 .has_kimi_delta = true,
                 .expert_layers = ExpertLayers::always,
                 .expert_choice = {.score = ExpertScore::sigmoid},
                 .choice_bias = true,
                 .no_rope_period = 1},
    Architecture{
        .name = "apertus", .qk_norm = QkNorm::head, .has_gate = false, .activation = Activation::Kind::xielu},
};

/// True if the family gives layer `index` the window.
bool has_family_window(const Architecture& architecture, int32_t index) {
  const int32_t period = architecture.window_period;
  return period == 1 || (period > 1 && index % period < period - 1);
}

/// Index of a layer's rotary table. `windowed`: of a model that has layers with a window.
int32_t rope_of(const Architecture& architecture, int32_t index, bool windowed, bool has_window) {
  const int32_t period = architecture.no_rope_period;
  if (architecture.no_rope_without_window && windowed && !has_window) return LayerConfig::kNoRope;
  if (period > 0 && index % period == period - 1) return LayerConfig::kNoRope;
  return architecture.own_window_rope && has_window ? 1 : 0;
}

}  // namespace

std::span<const Architecture> known_architectures() {
  return kArchitectures;
}

const Architecture& find_architecture(std::string_view name) {
  const auto found = std::ranges::find(kArchitectures, name, &Architecture::name);
  if (found == kArchitectures.end()) {
    std::vector<std::string_view> known;
    for (const Architecture& architecture : kArchitectures)
      known.push_back(architecture.name);
    fail<FileError>("architecture \"{}\" is not supported; known ones: {}", printable(name),
                    fmt::join(known, ", "));
  }
  return *found;
}

void apply_family(ModelConfig& config, int32_t window, const std::vector<bool>& has_window) {
  const Architecture& architecture = config.architecture;
  config.layers.clear();
  bool any = false;
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const bool has =
        has_window.empty() ? has_family_window(architecture, i) : has_window[static_cast<size_t>(i)];
    LayerConfig& layer = config.layers.emplace_back();
    if (has && window > 0) layer.window = {window, architecture.has_chunks};
    layer.rope = rope_of(architecture, i, window > 0, bool{layer.window});
    layer.has_temperature = config.temperature.scale > 0.0f &&
                            (architecture.temperature_by_yarn || layer.rope == LayerConfig::kNoRope);
    layer.has_experts = config.has_experts(i);
    any = any || layer.window;
  }
  config.ropes.resize(1);
  if (architecture.own_window_rope && any) {
    const float base =
        architecture.window_rope_base > 0.0f ? architecture.window_rope_base : config.ropes.front().base;
    config.ropes.push_back({.base = base});
  }
  config.attention_scale =
      config.ropes.front().scaling.attention_factor / std::sqrt(static_cast<float>(config.key_size()));
  if (architecture.attention_scale > 0.0f) config.attention_scale = architecture.attention_scale;
  if (architecture.adjust != nullptr) architecture.adjust(config);
}

std::vector<bool> all_but_every(int32_t period, int32_t num_layers) {
  std::vector<bool> layers;
  for (int32_t layer = 0; layer < num_layers; ++layer)
    layers.push_back(layer % period < period - 1);
  return layers;
}

void set_delta_layers(ModelConfig& config, const std::vector<bool>& recurrent) {
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.is_delta_net = recurrent[i];
    if (layer.is_delta_net) layer.rope = LayerConfig::kNoRope;
  }
}

int32_t share_keys(ModelConfig& config, int32_t count) {
  const int32_t first = config.num_layers - count;
  for (int32_t i = first; i < config.num_layers; ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    int32_t source = first - 1;
    while (source >= 0 && config.layer(source).window != layer.window)
      --source;
    if (source < 0) return i;
    layer.kv_of = source;
    layer.heads = config.layer(source).heads;
    layer.values_are_keys = false;
  }
  return -1;
}

}  // namespace minfer
