#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "kernels/comm/rank.h"
#include "models/gguf/gguf.h"

namespace minfer {

/// Whether the feed-forward layers of a family choose among experts.
enum class ExpertLayers : uint8_t { never, if_counted, always };

/// What makes a model family differ in the one generic decoder. A new family is a row of the table in
/// config.cpp.
struct Architecture {
  std::string_view name;  ///< general.architecture, also the prefix of its keys
  RopePairing rope_pairing = RopePairing::interleaved;
  bool qk_norm = false;   ///< RMS norm of every head of q and k before the rotation
  bool qkv_bias = false;  ///< biases on the q, k and v projections are required
  ExpertLayers expert_layers = ExpertLayers::never;
  std::string_view expert_ffn_key = "feed_forward_length";  ///< key of an expert's ffn_size
  /// attention.sliding_window is a window that the model was trained with. Elsewhere converters copy the
  /// number from configurations that say use_sliding_window: false, so it means nothing.
  bool sliding_window = false;
};

std::span<const Architecture> known_architectures();
/// Throws FileError that names the unknown architecture and lists the known ones.
const Architecture& find_architecture(std::string_view name);

/// How rotary frequencies are stretched to contexts longer than the model was first trained for.
struct RopeScaling {
  enum class Kind : uint8_t { none, linear, yarn };
  Kind kind = Kind::none;
  float factor = 1.0f;
  int32_t original_context = 0;  ///< YaRN: context before stretching
  float magnitude = 1.0f;        ///< YaRN: multiplies cos and sin, so that logits grow by its square
  float beta_fast = 32.0f;       ///< YaRN: rotations above which a dimension is left alone
  float beta_slow = 1.0f;        ///< YaRN: rotations below which it is interpolated fully
};

/// The shape of a decoder-only model, from GGUF metadata or a synthetic model's table. All values are
/// checked: positive where they must be, and consistent with each other.
struct ModelConfig {
  Architecture architecture;
  std::string name;
  int32_t vocab_size = 0;
  int32_t context_length = 0;
  int32_t hidden_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_size = 0;
  int32_t ffn_size = 0;  ///< of a dense layer, or of one expert
  int32_t num_experts = 0;
  int32_t num_experts_used = 0;
  /// Of a share of a model (shard.h): whose; heads, KV heads, ffn_size and vocab_size are then those of the share.
  Rank rank = {};
  float norm_eps = 1e-5f;
  float rope_base = 10000.0f;
  int32_t rotary_size = 0;
  RopeScaling rope_scaling;

  int32_t q_size() const { return num_heads * head_size; }
  int32_t kv_size() const { return num_kv_heads * head_size; }
  int32_t qkv_size() const { return q_size() + 2 * kv_size(); }
  int32_t whole_vocab_size() const { return vocab_size * rank.count; }
  bool is_moe() const { return num_experts > 0; }
};

/// Reads and checks ARCH.* metadata. A key that llama.cpp writes as an array with a value a layer is taken if
/// the values are alike. Throws FileError naming the key, what was expected and what was found.
ModelConfig read_config(const GgufFile& file);

/// YaRN's magnitude of cos and sin for a stretch by `factor` (arXiv:2309.00071, section 3.4, and its
/// refinement by DeepSeek-V2's mscale_all_dim, which GGUF calls yarn_log_multiplier; 0: none). Times
/// attention_factor, GGUF's rope.scaling.attn_factor.
float yarn_magnitude(float factor, float attention_factor, float log_multiplier);

/// cos and sin of every rotation angle, all scaling applied: [max_positions, rotary_size / 2, 2].
/// `frequency_factors` (llama3 scaling: the rope_freqs tensor) divides each frequency; empty means none. YaRN
/// as Peng et al. 2023 (arXiv:2309.00071), with the attention temperature folded into the table.
std::vector<float> make_rope_table(const ModelConfig& config, std::span<const float> frequency_factors,
                                   int32_t max_positions);

}  // namespace minfer
