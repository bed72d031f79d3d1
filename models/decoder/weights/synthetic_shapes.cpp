#include "models/decoder/weights/synthetic_shapes.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/ranges.h>

#include "models/decoder/weights/model_source.h"
#include "models/gguf/nearest_name.h"

namespace minfer::synthetic {
namespace {

constexpr std::array kShapes{
    Shape{"llama-3.2-1b", "llama", 128256, 131072, 2048, 16, 32, 8, 64, 8192, 5e5f, 1e-5f, 32.0f, true},
    Shape{"llama-3.1-8b", "llama", 128256, 131072, 4096, 32, 32, 8, 128, 14336, 5e5f, 1e-5f, 8.0f, false},
    Shape{"llama-3.1-70b", "llama", 128256, 131072, 8192, 80, 64, 8, 128, 28672, 5e5f, 1e-5f, 8.0f, false},
    Shape{"qwen3-0.6b", "qwen3", 151936, 40960, 1024, 28, 16, 8, 128, 3072, 1e6f, 1e-6f, 0.0f, true},
    Shape{"qwen3-8b", "qwen3", 151936, 40960, 4096, 36, 32, 8, 128, 12288, 1e6f, 1e-6f, 0.0f, false},
    Shape{"mistral-7b", "llama", 32768, 32768, 4096, 32, 32, 8, 128, 14336, 1e6f, 1e-5f, 0.0f, false},
    Shape{"llama-272m", "llama", 512, 8192, 1024, 24, 16, 4, 64, 2816, 1e4f, 1e-5f, 0.0f, false},
    Shape{"qwen3-30b-a3b", "qwen3moe", 151936, 40960, 2048, 48, 32, 4, 128, 768, 1e6f, 1e-6f, 0.0f, false,
          128, 8},
    Shape{"qwen3-next-80b-a3b", "qwen3next", 151936, 262144, 2048, 48, 16, 2, 256, 512, 1e7f, 1e-6f, 0.0f,
          false, 512, 10}
        .with({.rotary_size = 64,
               .shared_ffn = 512,
               .delta_net =
                   {.key_heads = 16, .value_heads = 32, .key_size = 128, .value_size = 128, .conv_size = 4}}),
    Shape{"qwen3.5-9b", "qwen35", 248320, 262144, 4096, 32, 16, 4, 256, 12288, 1e7f, 1e-6f, 0.0f, false}.with(
        {.rotary_size = 64,
         .delta_net =
             {.key_heads = 16, .value_heads = 32, .key_size = 128, .value_size = 128, .conv_size = 4}}),
    Shape{"qwen3.5-35b-a3b", "qwen35moe", 248320, 262144, 2048, 40, 16, 2, 256, 512, 1e7f, 1e-6f, 0.0f, false,
          256, 8}
        .with({.rotary_size = 64,
               .shared_ffn = 512,
               .delta_net =
                   {.key_heads = 16, .value_heads = 32, .key_size = 128, .value_size = 128, .conv_size = 4}}),
    Shape{"lfm2-8b-a1b", "lfm2moe", 65536, 128000, 2048, 24, 32, 8, 64, 1792, 1e6f, 1e-5f, 0.0f, true, 32, 4}
        .with({.dense_layers = 2, .dense_ffn = 7168, .conv_size = 3, .attending = 0x244444}),
    Shape{"granite-4-h-small", "granitehybrid", 100352, 131072, 4096, 40, 32, 8, 128, 768, 1e4f, 1e-5f, 0.0f,
          true, 72, 10}
        .with({.residual_scale = 0.22f,
               .shared_ffn = 1536,
               .attending = 0x802008020,
               .delta_net =
                   {.key_heads = 1, .value_heads = 128, .key_size = 128, .value_size = 64, .conv_size = 4}}),
    Shape{"kimi-linear-48b-a3b", "kimi-linear", 163840, 1048576, 2304, 27, 32, 1, 576, 1024, 1e4f, 1e-5f,
          0.0f, false, 256, 8}
        .with({.rotary_size = 64,
               .dense_layers = 1,
               .dense_ffn = 9216,
               .shared_ffn = 1024,
               .attending = 0x4888888,
               .delta_net =
                   {.key_heads = 32, .value_heads = 32, .key_size = 128, .value_size = 128, .conv_size = 4},
               .latent = {.kv_rank = 512, .key_size = 192, .value_size = 128}}),
    Shape{"mixtral-8x7b", "llama", 32000, 32768, 4096, 32, 32, 8, 128, 14336, 1e6f, 1e-5f, 0.0f, false, 8, 2},
    Shape{"gpt-oss-20b", "gpt-oss", 201088, 131072, 2880, 24, 64, 8, 64, 2880, 1.5e5f, 1e-5f, 0.0f, false, 32,
          4}
        .with({.window = 128, .biases = true, .yarn_factor = 32.0f}),
    Shape{"olmoe-1b-7b", "olmoe", 50304, 4096, 2048, 16, 16, 16, 128, 1024, 1e4f, 1e-5f, 0.0f, false, 64, 8},
    Shape{"qwen1.5-moe-a2.7b", "qwen2moe", 151936, 8192, 2048, 24, 16, 16, 128, 1408, 1e6f, 1e-6f, 0.0f,
          false, 60, 4}
        .with({.shared_ffn = 5632}),
    Shape{"glm-4.5-air", "glm4moe", 151552, 131072, 4096, 46, 96, 8, 128, 1408, 1e6f, 1e-5f, 0.0f, false, 128,
          8}
        .with({.rotary_size = 64,
               .dense_layers = 1,
               .dense_ffn = 10944,
               .shared_ffn = 1408,
               .normalises = true,
               .qkv_bias = true}),
    Shape{"gemma-2-9b", "gemma2", 256000, 8192, 3584, 42, 16, 8, 256, 14336, 1e4f, 1e-6f, 0.0f, true}.with(
        {.window = 4096, .attention_cap = 50.0f, .logit_cap = 30.0f}),
    Shape{"gemma-3-12b", "gemma3", 262144, 131072, 3840, 48, 16, 8, 256, 15360, 1e6f, 1e-6f, 0.0f, true}.with(
        {.window = 1024}),
    Shape{"gemma-3n-e4b", "gemma3n", 262400, 32768, 2048, 35, 8, 2, 256, 16384, 1e6f, 1e-6f, 0.0f, true}.with(
        {.window = 512,
         .logit_cap = 30.0f,
         .layer_input = 256,
         .shared_kv_layers = 15,
         .laurel_rank = 64,
         .cut_layers = 10}),
    Shape{"gemma-4-31b", "gemma4", 262144, 262144, 5376, 60, 32, 4, 512, 21504, 1e6f, 1e-6f, 0.0f, true}.with(
        {.window = 1024,
         .logit_cap = 30.0f,
         .window_kv_heads = 16,
         .window_head_size = 256,
         .values_are_keys = true}),
    Shape{"gemma-4-e4b", "gemma4", 262144, 131072, 2560, 42, 8, 2, 512, 10240, 1e6f, 1e-6f, 0.0f, true}.with(
        {.window = 512,
         .logit_cap = 30.0f,
         .window_kv_heads = 2,
         .window_head_size = 256,
         .layer_input = 256,
         .shared_kv_layers = 18}),
    Shape{"gemma-4-26b-a4b", "gemma4", 262144, 262144, 2816, 30, 16, 2, 512, 704, 1e6f, 1e-6f, 0.0f, true,
          128, 8}
        .with({.window = 1024,
               .logit_cap = 30.0f,
               .shared_ffn = 2112,
               .window_kv_heads = 8,
               .window_head_size = 256,
               .values_are_keys = true}),
    Shape{"phi-3-mini", "phi3", 32064, 4096, 3072, 32, 32, 32, 96, 8192, 1e4f, 1e-5f, 0.0f, false}.with(
        {.window = 2047}),
    Shape{"phi-4", "phi3", 100352, 16384, 5120, 40, 40, 10, 128, 17920, 2.5e5f, 1e-5f, 0.0f, false},
    Shape{"smollm3-3b", "smollm3", 128256, 65536, 2048, 36, 16, 4, 128, 11008, 5e6f, 1e-6f, 0.0f, true},
    Shape{"olmo-2-7b", "olmo2", 100352, 4096, 4096, 32, 32, 32, 128, 11008, 5e5f, 1e-6f, 0.0f, false},
    Shape{"granite-3.3-8b", "granite", 49159, 131072, 4096, 40, 32, 8, 128, 12800, 1e7f, 1e-5f, 0.0f, true}
        .with({.residual_scale = 0.22f}),
    Shape{"glm-4-9b", "glm4", 151552, 32768, 4096, 40, 32, 2, 128, 13696, 1e4f, 1e-5f, 0.0f, false}.with(
        {.rotary_size = 64}),
    Shape{"command-r7b", "cohere2", 256000, 132096, 4096, 32, 32, 8, 128, 14336, 5e4f, 1e-5f, 0.0f, true}
        .with({.window = 4096}),
    Shape{"starcoder2-3b", "starcoder2", 49152, 16384, 3072, 30, 24, 2, 128, 12288, 1e6f, 1e-5f, 0.0f, true}
        .with({.window = 4096}),
    Shape{"deepseek-v2-lite", "deepseek2", 102400, 163840, 2048, 27, 16, 1, 576, 1408, 1e4f, 1e-6f, 0.0f,
          false, 64, 6}
        .with({.rotary_size = 64,
               .dense_layers = 1,
               .dense_ffn = 10944,
               .shared_ffn = 2816,
               .latent = {.kv_rank = 512, .key_size = 192, .value_size = 128}}),
    Shape{"llama-4-scout", "llama4", 202048, 10485760, 5120, 48, 40, 8, 128, 8192, 5e5f, 1e-5f, 16.0f, false,
          16, 1}
        .with({.window = 8192, .shared_ffn = 8192}),
    Shape{"llama-4-maverick", "llama4", 202048, 1048576, 5120, 48, 40, 8, 128, 8192, 5e5f, 1e-5f, 0.0f, false,
          128, 1}
        .with({.window = 8192, .dense_ffn = 16384, .expert_period = 2, .shared_ffn = 8192}),
    Shape{"tiny", "llama", 512, 2048, 256, 2, 8, 2, 32, 512, 1e4f, 1e-5f, 0.0f, false},
    Shape{"tiny-moe", "qwen3moe", 512, 2048, 256, 2, 8, 2, 32, 256, 1e4f, 1e-6f, 0.0f, false, 8, 2},
    Shape{"tiny-wide", "gemma4", 512, 2048, 256, 6, 8, 1, 512, 512, 1e6f, 1e-6f, 0.0f, true}.with(
        {.window = 64,
         .logit_cap = 30.0f,
         .window_kv_heads = 4,
         .window_head_size = 256,
         .values_are_keys = true}),
    Shape{"tiny-latent", "deepseek2", 512, 2048, 256, 2, 8, 1, 576, 512, 1e4f, 1e-6f, 0.0f, false}.with(
        {.rotary_size = 64, .latent = {.q_rank = 256, .kv_rank = 512, .key_size = 192, .value_size = 128}}),
    Shape{"tiny-sparse", "deepseek32", 512, 2048, 256, 2, 8, 1, 576, 512, 1e4f, 1e-6f, 0.0f, false}.with(
        {.rotary_size = 64,
         .latent = {.q_rank = 256, .kv_rank = 512, .key_size = 192, .value_size = 128},
         .indexer = {.heads = 4, .key_size = 128, .most_chosen = 64}}),
    Shape{"tiny-hybrid", "qwen3next", 512, 2048, 256, 4, 8, 2, 32, 256, 1e4f, 1e-6f, 0.0f, false, 8, 2}.with(
        {.rotary_size = 8,
         .shared_ffn = 256,
         .delta_net =
             {.key_heads = 2, .value_heads = 4, .key_size = 128, .value_size = 128, .conv_size = 4}}),
};

constexpr std::array<TypeMix, 3> kMixes{{
    {"q3_k_m", DType::q3_k, DType::q5_k},
    {"q4_k_m", DType::q4_k, DType::q6_k},
    {"q5_k_m", DType::q5_k, DType::q6_k},
}};

struct SmallerBlocks {
  DType dtype;
  DType instead;
};
/// All other types of blocks of 256 become iq4_nl.
constexpr std::array<SmallerBlocks, 5> kSmallerBlocks{{
    {DType::q4_k, DType::q5_0},
    {DType::q5_k, DType::q5_1},
    {DType::q6_k, DType::q8_0},
    {DType::tq1_0, DType::q4_0},
    {DType::tq2_0, DType::q4_0},
}};

const Shape& find_shape(std::string_view shape_name) {
  const auto found = std::ranges::find(kShapes, shape_name, &Shape::name);
  if (found != kShapes.end()) return *found;
  const std::vector<std::string> known = synthetic_model_names();
  fail("synthetic model \"{}\" is not known; known ones: {}{}", shape_name, fmt::join(known, ", "),
       did_you_mean(shape_name, known));
}

TypeMix find_mix(std::string_view type_name) {
  const auto found = std::ranges::find(kMixes, type_name, &TypeMix::name);
  if (found != kMixes.end()) return *found;
  if (const std::optional<DType> dtype = dtype_from_name(type_name)) return {type_name, *dtype, *dtype};
  std::vector<std::string> known;
  for (const DTypeTraits& type : all_dtypes())
    known.emplace_back(type.name);
  for (const TypeMix& mix : kMixes)
    known.emplace_back(mix.name);
  fail("synthetic model type \"{}\" is not known; known ones: {}{}", type_name, fmt::join(known, ", "),
       did_you_mean(type_name, known));
}

/// Scores of heads of another size are scaled as a family's file would have it.
void set_heads_of_windows(ModelConfig& config, const ShapeOptions& options) {
  for (LayerConfig& layer : config.layers) {
    if (layer.window && options.window_head_size > 0) {
      layer.heads = LayerHeads{options.window_kv_heads, options.window_head_size, config.attention_scale};
    } else {
      layer.values_are_keys = options.values_are_keys;
    }
  }
  if (options.window_head_size > 0 && config.ropes.size() > 1)
    config.ropes.back().rotary_size = options.window_head_size;
}

/// Short convolutions, Mamba-2 or Kimi delta attention.
void set_layers_that_do_not_attend(ModelConfig& config, const ShapeOptions& options) {
  const bool is_mamba = config.architecture.has_mamba, is_delta = config.architecture.has_kimi_delta;
  std::vector<bool> is_recurrent;
  for (int32_t layer = 0; layer < config.num_layers; ++layer)
    is_recurrent.push_back((options.attending >> layer & 1) == 0);
  config.conv_size = options.conv_size;
  if (is_mamba || is_delta) {
    config.delta_net = options.delta_net;
    config.delta_net.decays_rows = is_delta;
  } else {
    config.conv_channels = config.hidden_size;
  }
  if (is_delta) return set_delta_layers(config, is_recurrent);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!is_recurrent[i]) continue;
    LayerConfig& layer = config.layers[i];
    (is_mamba ? layer.is_mamba : layer.is_short_conv) = true;
    layer.rope = LayerConfig::kNoRope;
  }
}

}  // namespace

Spec parse_spec(std::string_view spec) {
  if (spec.starts_with(kSyntheticPrefix)) spec.remove_prefix(kSyntheticPrefix.size());
  const size_t colon = spec.find(':');
  const std::string_view type_name = colon == std::string_view::npos ? "bf16" : spec.substr(colon + 1);
  return {find_shape(spec.substr(0, colon)), find_mix(type_name)};
}

ModelConfig config_of(const Shape& shape, std::string_view spec) {
  ModelConfig config;
  config.architecture = find_architecture(shape.architecture);
  if (config.architecture.qk_norm == QkNorm::head_if_there) config.architecture.qk_norm = QkNorm::none;
  config.name = spec;
  config.vocab_size = shape.vocab;
  config.context_length = shape.context;
  config.hidden_size = shape.hidden;
  config.num_layers = shape.layers;
  config.num_heads = shape.heads;
  config.num_kv_heads = shape.kv_heads;
  config.head_size = shape.head_size;
  config.latent = shape.options.latent;
  config.indexer = shape.options.indexer;
  config.norm_eps = shape.norm_eps;
  config.rotary_size = shape.options.rotary_size > 0 ? shape.options.rotary_size : shape.head_size;
  config.ropes = {{.base = shape.rope_base}};
  if (shape.options.yarn_factor > 0.0f) {
    config.ropes.front().scaling = {.kind = RopeScaling::Kind::yarn,
                                    .factor = shape.options.yarn_factor,
                                    .original_context = 4096,
                                    .magnitude = yarn_magnitude(shape.options.yarn_factor, 1.0f, 0.0f)};
  }
  config.num_experts = shape.experts;
  config.num_experts_used = shape.experts_used;
  config.num_dense_layers = shape.options.dense_layers;
  config.expert_period = shape.options.expert_period;
  config.expert_ffn_size = shape.experts > 0 ? shape.ffn : 0;
  config.ffn_size = shape.experts > 0 ? shape.options.dense_ffn : shape.ffn;
  config.shared_ffn_size = shape.options.shared_ffn;
  config.expert_choice = config.architecture.expert_choice;
  if (shape.options.normalises) config.expert_choice.normalise = true;
  if (config.architecture.temperature_length > 0)
    config.temperature = {config.architecture.temperature_scale, config.architecture.temperature_length};
  apply_family(config, shape.options.window);
  set_heads_of_windows(config, shape.options);
  if (const int32_t period = config.architecture.delta_period; period > 0) {
    config.delta_net = shape.options.delta_net;
    config.delta_net.in_turn = config.architecture.values_in_turn;
    set_delta_layers(config, all_but_every(period, config.num_layers));
  }
  config.layer_input_size = shape.options.layer_input;
  share_keys(config, shape.options.shared_kv_layers);
  if (config.architecture.has_streams) {
    config.num_streams = 4;
    config.laurel_rank = shape.options.laurel_rank;
    for (size_t i = 0; std::cmp_less(i, shape.options.cut_layers); ++i)
      config.layers[i].gate_cut = 1.6448536f;  // a twentieth of a normal distribution is above
  }
  if (shape.options.attending != 0) set_layers_that_do_not_attend(config, shape.options);
  config.attention_cap = shape.options.attention_cap;
  config.logit_cap = shape.options.logit_cap;
  config.residual_scale = shape.options.residual_scale;
  config.parallel_blocks = config.architecture.parallel_blocks == ParallelBlocks::always;
  if (!config.architecture.has_gate) {
    config.activations.assign(static_cast<size_t>(shape.layers),
                              Activation{.kind = config.architecture.activation});
  }
  return config;
}

DType type_for_columns(DType dtype, int64_t cols) {
  if (cols % traits(dtype).block_elements == 0) return dtype;
  const auto found = std::ranges::find(kSmallerBlocks, dtype, &SmallerBlocks::dtype);
  if (found != kSmallerBlocks.end()) return found->instead;
  return traits(dtype).block_elements == 256 ? DType::iq4_nl : dtype;
}

}  // namespace minfer::synthetic

namespace minfer {

std::vector<std::string> synthetic_model_names() {
  std::vector<std::string> names;
  for (const synthetic::Shape& shape : synthetic::kShapes)
    names.emplace_back(shape.name);
  return names;
}

ModelConfig synthetic_config(std::string_view spec) {
  return synthetic::config_of(synthetic::parse_spec(spec).shape, spec);
}

}  // namespace minfer
