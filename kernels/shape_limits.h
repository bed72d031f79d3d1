#pragma once

#include <cstdint>
#include <limits>

namespace minfer {

/// The model shapes that a backend's ops can run, as far as they are narrower than what a file may say. The
/// loader of a model checks it against them, so that no op meets a shape that it must refuse.
struct ShapeLimits {
  static constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

  int32_t max_vocab_size = kNone;
  int32_t max_head_size = kNone;
  int32_t max_latent_row = kNone;  ///< head size of latent attention: its rank and the rotated key
  int32_t head_size_multiple = 1;
  int32_t rotary_size_multiple = 2;
  int32_t max_experts = kNone;
  int32_t max_hidden_size = kNone;      ///< columns of most weights; gate and up are multiplied as a pair
  int32_t max_columns = kNone;          ///< of the other weights
  int32_t columns_multiple = 1;         ///< of weights that are not f32
  int32_t max_attention_kinds = kNone;  ///< layers that differ in window, KV heads or head size
  int32_t max_delta_key_size = kNone;   ///< heads of q and k in gated delta nets
  int32_t max_indexer_columns = kNone;  ///< of all heads of an indexer's queries
};

}  // namespace minfer
