#pragma once

#include <array>
#include <vector>

#include "models/decoder/config/config.h"

namespace minfer {

/// An EAGLE-3 head (Li et al. 2025, "EAGLE-3", arXiv:2503.01840): a layer in a file of its own that makes drafts for a model, the target,
/// from hidden states of three of its layers (emit/eagle.cpp). The format is llama.cpp's architecture "eagle3".
struct EagleHead {
  static constexpr std::string_view kArchitecture = "eagle3";

  std::string file;    ///< for messages
  ModelConfig config;  ///< of the one layer; vocab_size: the tokens that it drafts
  /// The target's layers whose inputs the head takes; the target's number of layers: the last layer's output.
  std::array<int32_t, 3> target_layers = {};
  int32_t target_hidden_size = 0;
  int32_t target_vocab_size = 0;
  bool norms_features = false;  ///< the hidden states side by side, in front of their product
  bool norms_residual = false;  ///< the residual stream begins behind the norm of the hidden state
  /// [target_vocab_size]: the column of the head's logits for each of the target's tokens, -1: never drafted; empty: all are, in order.
  std::vector<float> columns = {};
};

/// Reads a head for `target`. Throws FileError naming the key or the tensor, the expected and the found value, also where the two do
/// not fit together.
EagleHead read_eagle_head(const GgufFile& file, const ModelConfig& target);

/// Makes the head the layer for drafts of `target`, which has no other one.
void add_eagle_head(EagleHead head, ModelConfig& target);

}  // namespace minfer
