#include "models/config.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

namespace minfer {
namespace {

constexpr std::array<Architecture, 4> kArchitectures{{
    // Llama, Mistral and (with experts) Mixtral; their q and k rows are stored for interleaved rotation.
    {.name = "llama"},
    {.name = "qwen2", .rope_pairing = RopePairing::halves, .qkv_bias = true},
    {.name = "qwen3", .rope_pairing = RopePairing::halves, .qk_norm = true},
    {.name = "qwen3moe", .rope_pairing = RopePairing::halves, .qk_norm = true},
}};

/// Bounds of anything that is multiplied into a size later, far above real models and far below overflow.
constexpr int64_t kMaxDimension = 1 << 24;

/// Reads ARCH.* keys with their ranges.
class KeyReader {
 public:
  KeyReader(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  int32_t positive(std::string_view key, std::optional<int64_t> fallback = std::nullopt) const {
    return ranged(key, 1, kMaxDimension, fallback);
  }

  int32_t ranged(std::string_view key, int64_t low, int64_t high,
                 std::optional<int64_t> fallback = std::nullopt) const {
    const std::string full = full_key(key);
    const std::optional<int64_t> found = file_.get_int(full);
    if (!found && !fallback) fail<FileError>("{}: key {} is missing", file_.name(), full);
    const int64_t value = found.value_or(fallback.value_or(0));
    if (value < low || value > high) {
      fail<FileError>("{}: {} is {}, expected {} to {}", file_.name(), full, value, low, high);
    }
    return static_cast<int32_t>(value);
  }

  float positive_float(std::string_view key, std::optional<float> fallback = std::nullopt) const {
    const std::string full = full_key(key);
    const std::optional<double> found = file_.get_float(full);
    if (!found && !fallback) fail<FileError>("{}: key {} is missing", file_.name(), full);
    const double value = found.value_or(fallback.value_or(0.0f));
    if (!(value > 0.0 && value < 1e12)) {
      fail<FileError>("{}: {} is {}, expected a positive number", file_.name(), full, value);
    }
    return static_cast<float>(value);
  }

  bool has(std::string_view key) const { return file_.has(full_key(key)); }
  std::string full_key(std::string_view key) const { return fmt::format("{}.{}", prefix_, key); }

 private:
  const GgufFile& file_;
  std::string_view prefix_;
};

RopeScaling read_rope_scaling(const GgufFile& file, const KeyReader& keys, int32_t context_length) {
  RopeScaling scaling;
  const std::string type_key = keys.full_key("rope.scaling.type");
  // Files from before rope.scaling.* carry only a linear scale.
  const std::string_view type =
      file.get_string(type_key).value_or(keys.has("rope.scale_linear") ? "linear" : "none");
  if (type == "none") return scaling;
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
    scaling.factor =
        keys.positive_float("rope.scaling.factor", keys.positive_float("rope.scale_linear", 1.0f));
    return scaling;
  }
  if (type == "yarn") {
    scaling.kind = RopeScaling::Kind::yarn;
    scaling.factor = keys.positive_float("rope.scaling.factor");
    scaling.original_context = keys.positive("rope.scaling.original_context_length", context_length);
    scaling.attention_factor = keys.positive_float("rope.scaling.attn_factor", 1.0f);
    scaling.beta_fast = keys.positive_float("rope.scaling.yarn_beta_fast", 32.0f);
    scaling.beta_slow = keys.positive_float("rope.scaling.yarn_beta_slow", 1.0f);
    return scaling;
  }
  fail<FileError>("{}: {} is \"{}\", expected none, linear or yarn", file.name(), type_key, type);
}

int32_t read_vocab_size(const GgufFile& file, const KeyReader& keys) {
  // The embedding table decides; the key, if there, must agree with it (checked with all shapes by
  // load_weights).
  if (const HostTensor* table = file.find_tensor("token_embd.weight")) {
    if (table->rows < 1 || table->rows > kMaxDimension) {
      fail<FileError>("{}: tensor token_embd.weight has {} rows, expected 1 to {}", file.name(), table->rows,
                      kMaxDimension);
    }
    return static_cast<int32_t>(table->rows);
  }
  return keys.positive("vocab_size");
}

void check_heads(const GgufFile& file, const KeyReader& keys, const ModelConfig& config) {
  if (config.num_heads % config.num_kv_heads != 0) {
    fail<FileError>("{}: {} is {}, expected a multiple of {} = {}", file.name(),
                    keys.full_key("attention.head_count"), config.num_heads,
                    keys.full_key("attention.head_count_kv"), config.num_kv_heads);
  }
  if (config.rotary_size % 2 != 0 || config.rotary_size > config.head_size) {
    fail<FileError>("{}: {} is {}, expected an even number up to the head size {}", file.name(),
                    keys.full_key("rope.dimension_count"), config.rotary_size, config.head_size);
  }
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
    fail<FileError>("architecture \"{}\" is not supported; known ones: {}", name, fmt::join(known, ", "));
  }
  return *found;
}

ModelConfig read_config(const GgufFile& file) {
  ModelConfig config;
  config.architecture = find_architecture(file.require_string("general.architecture"));
  const KeyReader keys(file, config.architecture.name);
  config.name = file.get_string("general.name").value_or(file.name());
  config.vocab_size = read_vocab_size(file, keys);
  config.context_length = keys.positive("context_length");
  config.hidden_size = keys.positive("embedding_length");
  config.num_layers = keys.ranged("block_count", 1, 1000);
  config.num_heads = keys.ranged("attention.head_count", 1, 4096);
  config.num_kv_heads = keys.ranged("attention.head_count_kv", 1, 4096, config.num_heads);
  config.head_size = keys.ranged("attention.key_length", 1, 1024, config.hidden_size / config.num_heads);
  if (keys.ranged("attention.value_length", 1, 1024, config.head_size) != config.head_size) {
    fail<FileError>("{}: {} differs from {} = {}: not supported", file.name(),
                    keys.full_key("attention.value_length"), keys.full_key("attention.key_length"),
                    config.head_size);
  }
  config.num_experts = keys.ranged("expert_count", 0, 1024, 0);
  if (config.is_moe()) {
    config.num_experts_used = keys.ranged("expert_used_count", 1, config.num_experts);
    config.ffn_size = keys.has("expert_feed_forward_length") ? keys.positive("expert_feed_forward_length")
                                                             : keys.positive("feed_forward_length");
  } else {
    config.ffn_size = keys.positive("feed_forward_length");
  }
  config.norm_eps = keys.positive_float("attention.layer_norm_rms_epsilon");
  config.rope_base = keys.positive_float("rope.freq_base", 10000.0f);
  config.rotary_size = keys.ranged("rope.dimension_count", 2, 1024, config.head_size);
  config.rope_scaling = read_rope_scaling(file, keys, config.context_length);
  if (keys.has("attention.sliding_window") && keys.ranged("attention.sliding_window", 0, kMaxDimension) > 0 &&
      keys.ranged("attention.sliding_window", 0, kMaxDimension) < config.context_length) {
    // Full attention and a window agree up to the window's length; beyond it the model was trained otherwise.
    config.context_length = keys.positive("attention.sliding_window");
  }
  check_heads(file, keys, config);
  return config;
}

}  // namespace minfer
