#include "models/decoder/architecture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <fmt/ranges.h>

#include "models/decoder/config.h"
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

constexpr std::array kArchitectures{
    // Llama, Mistral and (with experts) Mixtral; their q and k rows are stored for interleaved rotation.
    Architecture{.name = "llama", .expert_layers = ExpertLayers::if_counted, .window_period = 1},
    Architecture{.name = "qwen2", .rope_pairing = RopePairing::halves, .qkv_bias = true},
    Architecture{.name = "qwen3", .rope_pairing = RopePairing::halves, .qk_norm = QkNorm::head},
    Architecture{.name = "qwen3moe",
                 .rope_pairing = RopePairing::halves,
                 .qk_norm = QkNorm::head,
                 .expert_layers = ExpertLayers::always,
                 .expert_ffn_key = "expert_feed_forward_length"},
    Architecture{.name = "gemma2",
                 .rope_pairing = RopePairing::halves,
                 .norm_placement = NormPlacement::both,
                 .gate = GateActivation::gelu_tanh,
                 .window_period = 2,
                 .needs_window = true,
                 .adjust = adjust_gemma},
    Architecture{.name = "gemma3",
                 .rope_pairing = RopePairing::halves,
                 .qk_norm = QkNorm::head,
                 .norm_placement = NormPlacement::both,
                 .gate = GateActivation::gelu_tanh,
                 .window_period = 6,
                 .needs_window = true,
                 .own_window_rope = true,
                 .window_rope_base = 10000.0f,
                 .adjust = adjust_gemma},
};

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

}  // namespace minfer
