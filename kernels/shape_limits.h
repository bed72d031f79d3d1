#pragma once

#include <cstdint>
#include <limits>

namespace minfer {

/// The model shapes that the ops of a backend can run, as far as they are narrower than what a file may say.
/// Whoever loads a model holds it against them, so that no op meets a shape it has to refuse.
struct ShapeLimits {
  static constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

  int32_t max_vocab_size = kNone;
  int32_t max_head_size = kNone;
  int32_t max_latent_row = kNone;  ///< head size of latent attention: its rank with the rotated key
  int32_t head_size_multiple = 1;
  int32_t rotary_size_multiple = 2;
  int32_t max_experts = kNone;
  int32_t max_hidden_size = kNone;      ///< columns of most weights; gate and up are multiplied as a pair
  int32_t max_columns = kNone;          ///< of the other weights
  int32_t columns_multiple = 1;         ///< of weights that are not f32
  int32_t max_attention_kinds = kNone;  ///< of layers that differ in window, KV heads or their size
  int32_t max_delta_key_size = kNone;   ///< of gated delta nets: heads of q and k
};

}  // namespace minfer
