#pragma once

#include <cstdint>

namespace minfer {

/// Sizes of a gated delta net (Yang et al. 2024, "Gated delta networks", arXiv:2412.06464), the same in all layers that have one. Mamba-2
/// (Dao & Gu 2024, "Transformers are SSMs", arXiv:2405.21060) has states of the same kind: its heads x are heads of v, and the B and C of
/// a group are a head of k and of q. Kimi delta attention (Kimi Team 2025, "Kimi Linear", arXiv:2510.26692) is a gated delta net whose states
/// have a decay for each row.
struct DeltaNetShape {
  int32_t key_heads = 0;    ///< heads of q and k
  int32_t value_heads = 0;  ///< a multiple of key_heads; 0: no layer is a gated delta net or Mamba-2
  int32_t key_size = 0;     ///< of a head of q and k
  int32_t value_size = 0;   ///< of a head of v
  int32_t conv_size = 0;    ///< inputs that the convolution sums, the token's own included; at least 2
  /// True: value head h goes with key head h mod key_heads (Qwen3.5's files). False: with h / values_of_key().
  bool in_turn = false;
  bool decays_rows = false;  ///< Kimi delta attention

  int32_t key_columns() const { return key_heads * key_size; }
  int32_t value_columns() const { return value_heads * value_size; }
  /// Channels of the convolution: heads of q, of k, of v.
  int32_t channels() const { return 2 * key_columns() + value_columns(); }
  int32_t values_of_key() const { return value_heads / key_heads; }
  int32_t key_head_of(int32_t value_head) const {
    return in_turn ? value_head % key_heads : value_head / values_of_key();
  }
  /// Numbers by which a token makes the decays of all states.
  int32_t alphas() const { return value_heads * (decays_rows ? key_size : 1); }
  /// The number of value heads whose betas stand in front of their alphas (DeltaRuleArgs::gates).
  int32_t gate_group() const { return in_turn ? value_heads : values_of_key(); }
  // Elements of a sequence's state in one layer.
  int64_t conv_state() const { return int64_t{conv_size - 1} * channels(); }
  int64_t delta_state() const { return int64_t{value_columns()} * key_size; }

  bool operator==(const DeltaNetShape&) const = default;
};

/// The number that the L2 norms of q and k add to the sum of squares, in every implementation (no key of model files has it).
inline constexpr float kDeltaNormEps = 1e-6f;

/// The states of one layer in backend memory, one for each slot; a short convolution has `conv` alone. If a sequence's first token in a
/// step has position 0, its slot's state counts as zeros, whatever it holds.
struct RecurrentLayer {
  float* conv =
      nullptr;  ///< [num_slots, conv_size - 1, channels]: the last inputs of the convolution, in order
  float* delta = nullptr;  ///< [num_slots, value_heads, key_size, value_size]
  int32_t num_slots = 0;
};

}  // namespace minfer
