#pragma once

#include "models/decoder/config/config.h"
#include "models/decoder/config/config_keys.h"

namespace minfer {

// The parts of read_config() that read heads and layers with states. Each throws FileError that names the key.

/// feed_forward_length of each layer; 0, where layers are single blocks: it has no feed-forward block.
std::vector<int32_t> ffn_sizes_of_layers(const KeyReader& keys, const ModelConfig& config);

/// Reads the model's heads, for layers without their own, and latent attention's sizes.
void read_attention(const KeyReader& keys, ModelConfig& config);

/// Reads the indexer's sizes and the layers that take another layer's choice, for a family with an indexer. `config` has its layers.
void read_indexer(const KeyReader& keys, ModelConfig& config);

/// Reads the heads of layers that differ from the model's: KV heads from an array (0: a short convolution, Mamba-2 or a feed-forward block), sizes of layers with
/// windows from their own keys. `states_scale`: the scale of scores is given, for any head size.
void read_layer_heads(const KeyReader& keys, bool states_scale, ModelConfig& config);

/// Reads the rotated elements of layers with windows, if these have their own table. Else all layers share one table, so all heads
/// must have equal numbers of rotated elements.
void read_layer_rotation(const KeyReader& keys, ModelConfig& config);

/// Reads the sizes of gated delta nets (Kimi's as well) or Mamba-2, and the layers that are delta nets, for a family with such layers. `config` has its layers.
void read_delta_net(const KeyReader& keys, ModelConfig& config);

}  // namespace minfer
