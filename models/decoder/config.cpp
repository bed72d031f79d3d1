#include "models/decoder/config.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include <fmt/ranges.h>

#include "models/gguf/printable.h"

namespace minfer {
namespace {

constexpr std::array<Architecture, 4> kArchitectures{{
    // Llama, Mistral and (with experts) Mixtral; their q and k rows are stored for interleaved rotation.
    {.name = "llama", .expert_layers = ExpertLayers::if_counted, .sliding_window = true},
    {.name = "qwen2", .rope_pairing = RopePairing::halves, .qkv_bias = true},
    {.name = "qwen3", .rope_pairing = RopePairing::halves, .qk_norm = true},
    {.name = "qwen3moe",
     .rope_pairing = RopePairing::halves,
     .qk_norm = true,
     .expert_layers = ExpertLayers::always,
     .expert_ffn_key = "expert_feed_forward_length"},
}};

/// Bounds of anything that is multiplied into a size later, far above real models and far below overflow.
constexpr int32_t kMaxDimension = 1 << 24;
constexpr int32_t kMaxLayers = 1000;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadSize = 1024;
constexpr int64_t kMaxExperts = 1024;

/// Bounds of any real number: outside them f32 arithmetic on it overflows or vanishes.
constexpr double kMinNumber = 1e-12;
constexpr double kMaxNumber = 1e12;

/// The metadata entry of a key; null if there is none.
const GgufFile::Entry* find_entry(const GgufFile& file, std::string_view key) {
  const auto entries = file.metadata();
  const auto found = std::ranges::find(entries, key, &GgufFile::Entry::key);
  return found == entries.end() ? nullptr : &*found;
}

/// Reads ARCH.* keys with their ranges.
class KeyReader {
 public:
  KeyReader(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  int32_t positive(std::string_view key, std::optional<int64_t> fallback = std::nullopt) const {
    return ranged(key, 1, kMaxDimension, fallback);
  }

  int32_t ranged(std::string_view key, int64_t low, int64_t high,
                 std::optional<int64_t> fallback = std::nullopt) const {
    return in_range(key, require(key, file_.get_int(full_key(key)), fallback), low, high);
  }

  /// A number for all layers, or an array with one for each. The decoder's layers are alike, so must these
  /// be.
  int32_t same_in_all_layers(std::string_view key, int32_t num_layers, int64_t high,
                             std::optional<int64_t> fallback = std::nullopt) const {
    const std::string full = full_key(key);
    const GgufFile::Entry* entry = find_entry(file_, full);
    if (entry == nullptr || entry->type != GgufType::array) return ranged(key, 1, high, fallback);
    const std::vector<int64_t> values = file_.get_ints(full);
    if (std::cmp_not_equal(values.size(), num_layers)) {
      fail<FileError>("{}: {} has {} elements, expected one for each of {} layers", file_.name(), full,
                      values.size(), num_layers);
    }
    const auto other = std::ranges::adjacent_find(values, std::not_equal_to());
    if (other != values.end()) {
      fail<FileError>("{}: {} differs between layers ({} and {}): not supported", file_.name(), full,
                      other[0], other[1]);
    }
    return in_range(key, values.front(), 1, high);
  }

  float positive_float(std::string_view key, std::optional<double> fallback = std::nullopt) const {
    return float_in_range(key, kMinNumber, fallback);
  }

  float float_in_range(std::string_view key, double low,
                       std::optional<double> fallback = std::nullopt) const {
    const double value = require(key, file_.get_float(full_key(key)), fallback);
    if (!(value >= low && value <= kMaxNumber)) {
      fail<FileError>("{}: {} is {}, expected {} to {}", file_.name(), full_key(key), value, low, kMaxNumber);
    }
    return static_cast<float>(value);
  }

  bool has(std::string_view key) const { return file_.has(full_key(key)); }
  std::string full_key(std::string_view key) const { return fmt::format("{}.{}", prefix_, key); }

 private:
  template <class T>
  T require(std::string_view key, const std::optional<T>& found, const std::optional<T>& fallback) const {
    if (!found && !fallback) fail<FileError>("{}: key {} is missing", file_.name(), full_key(key));
    return found ? *found : *fallback;
  }

  int32_t in_range(std::string_view key, int64_t value, int64_t low, int64_t high) const {
    if (value < low || value > high) {
      fail<FileError>("{}: {} is {}, expected {} to {}", file_.name(), full_key(key), value, low, high);
    }
    return static_cast<int32_t>(value);
  }

  const GgufFile& file_;
  std::string_view prefix_;
};

/// Magnitude by rope.scaling.yarn_attn_factor, which converters write where a model's own configuration
/// states attention_factor in place of the formula; else by the formula.
float read_yarn_magnitude(const KeyReader& keys, float factor) {
  if (keys.has("rope.scaling.yarn_attn_factor")) return keys.positive_float("rope.scaling.yarn_attn_factor");
  return yarn_magnitude(factor, keys.positive_float("rope.scaling.attn_factor", 1.0),
                        keys.float_in_range("rope.scaling.yarn_log_multiplier", 0.0, 0.0));
}

RopeScaling read_yarn(const GgufFile& file, const KeyReader& keys, int32_t context_length) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::yarn;
  scaling.factor = keys.positive_float("rope.scaling.factor");
  scaling.original_context = keys.positive("rope.scaling.original_context_length", context_length);
  scaling.magnitude = read_yarn_magnitude(keys, scaling.factor);
  scaling.beta_fast = keys.positive_float("rope.scaling.yarn_beta_fast", 32.0);
  scaling.beta_slow = keys.positive_float("rope.scaling.yarn_beta_slow", 1.0);
  const std::string extrapolation = keys.full_key("rope.scaling.yarn_ext_factor");
  if (const double found = file.get_float(extrapolation).value_or(1.0); found != 1.0) {
    fail<FileError>("{}: {} is {}: only 1 is supported", file.name(), extrapolation, found);
  }
  return scaling;
}

RopeScaling read_rope_scaling(const GgufFile& file, const KeyReader& keys, int32_t context_length) {
  const std::string type_key = keys.full_key("rope.scaling.type");
  // A factor without a type is linear; files from before rope.scaling.* call it scale_linear.
  const std::string_view type = file.get_string(type_key).value_or("linear");
  if (type == "none") return {};
  if (type == "linear") {
    RopeScaling scaling;
    scaling.factor =
        keys.positive_float("rope.scaling.factor", keys.positive_float("rope.scale_linear", 1.0));
    if (scaling.factor != 1.0f) scaling.kind = RopeScaling::Kind::linear;
    return scaling;
  }
  if (type == "yarn") return read_yarn(file, keys, context_length);
  fail<FileError>("{}: {} is \"{}\", expected none, linear or yarn", file.name(), type_key, printable(type));
}

/// The number of tokens. Ids of the tokeniser index the embedding table, and those sampled from the rows of
/// the output the tokeniser, so tokeniser and tables must agree.
int32_t read_vocab_size(const GgufFile& file, const KeyReader& keys) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  const GgufFile::Entry* tokens = find_entry(file, kTokens);
  if (tokens == nullptr) return keys.positive("vocab_size");
  if (tokens->count < 1 || tokens->count > kMaxDimension) {
    fail<FileError>("{}: {} has {} elements, expected 1 to {}", file.name(), kTokens, tokens->count,
                    kMaxDimension);
  }
  const HostTensor* table = file.find_tensor("token_embd.weight");
  if (table != nullptr && std::cmp_not_equal(table->rows, tokens->count)) {
    fail<FileError>("{}: tensor token_embd.weight: shape {}, expected {} rows from {}", file.name(),
                    table->shape(), tokens->count, kTokens);
  }
  return static_cast<int32_t>(tokens->count);
}

void read_attention(const GgufFile& file, const KeyReader& keys, ModelConfig& config) {
  config.num_heads = keys.same_in_all_layers("attention.head_count", config.num_layers, kMaxHeads);
  config.num_kv_heads =
      keys.same_in_all_layers("attention.head_count_kv", config.num_layers, kMaxHeads, config.num_heads);
  config.head_size =
      keys.ranged("attention.key_length", 1, kMaxHeadSize, config.hidden_size / config.num_heads);
  if (keys.ranged("attention.value_length", 1, kMaxHeadSize, config.head_size) != config.head_size) {
    fail<FileError>("{}: {} differs from {} = {}: not supported", file.name(),
                    keys.full_key("attention.value_length"), keys.full_key("attention.key_length"),
                    config.head_size);
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    fail<FileError>("{}: {} is {}, expected a multiple of {} = {}", file.name(),
                    keys.full_key("attention.head_count"), config.num_heads,
                    keys.full_key("attention.head_count_kv"), config.num_kv_heads);
  }
  config.rotary_size = keys.ranged("rope.dimension_count", 2, kMaxHeadSize, config.head_size);
  if (config.rotary_size % 2 != 0 || config.rotary_size > config.head_size) {
    fail<FileError>("{}: {} is {}, expected an even number up to the head size {}", file.name(),
                    keys.full_key("rope.dimension_count"), config.rotary_size, config.head_size);
  }
}

void read_feed_forward(const GgufFile& file, const KeyReader& keys, ModelConfig& config) {
  const Architecture& architecture = config.architecture;
  config.num_experts = keys.ranged("expert_count", 0, kMaxExperts, 0);
  if (config.is_moe() ? architecture.expert_layers == ExpertLayers::never
                      : architecture.expert_layers == ExpertLayers::always) {
    fail<FileError>("{}: {} is {}, expected {} of architecture {}", file.name(),
                    keys.full_key("expert_count"), config.num_experts,
                    config.is_moe() ? "none" : "at least 1", architecture.name);
  }
  if (config.is_moe()) config.num_experts_used = keys.ranged("expert_used_count", 1, config.num_experts);
  config.ffn_size =
      keys.same_in_all_layers(config.is_moe() ? architecture.expert_ffn_key : "feed_forward_length",
                              config.num_layers, kMaxDimension);
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

ModelConfig read_config(const GgufFile& file) {
  ModelConfig config;
  config.architecture = find_architecture(file.require_string("general.architecture"));
  const KeyReader keys(file, config.architecture.name);
  config.name = file.get_string("general.name").value_or(file.name());
  config.vocab_size = read_vocab_size(file, keys);
  config.context_length = keys.positive("context_length");
  config.hidden_size = keys.positive("embedding_length");
  config.num_layers = keys.ranged("block_count", 1, kMaxLayers);
  read_attention(file, keys, config);
  read_feed_forward(file, keys, config);
  config.norm_eps = keys.positive_float("attention.layer_norm_rms_epsilon");
  config.rope_base = keys.float_in_range("rope.freq_base", 1.001, 10000.0);
  config.rope_scaling = read_rope_scaling(file, keys, config.context_length);
  if (config.architecture.sliding_window) {
    const int32_t window = keys.ranged("attention.sliding_window", 0, kMaxDimension, 0);
    // Full attention and a window agree up to the window's length; beyond it the model was trained otherwise.
    if (window > 0) config.context_length = std::min(config.context_length, window);
  }
  return config;
}

}  // namespace minfer
