#pragma once

#include "models/decoder/config/config.h"
#include "models/decoder/config/config_keys.h"

namespace minfer {

// The parts of read_config() that read heads and layers with states. Each throws FileError that names the key.

/// Heads of the model, which layers have that have none of their own; latent attention's sizes.
void read_attention(const GgufFile& file, const KeyReader& keys, ModelConfig& config);

/// Heads of layers that differ from the model's: KV heads by an array, 0 of those that are short convolutions, sizes of layers with windows by keys of their own.
/// `states_scale`: of scores, whatever the heads' size.
void read_layer_heads(const GgufFile& file, const KeyReader& keys, bool states_scale, ModelConfig& config);

/// Rotated elements of layers with windows, where these have a table of their own. Else all layers have the same, so that all heads
/// must have as many.
void read_layer_rotation(const GgufFile& file, const KeyReader& keys, ModelConfig& config);

/// Sizes of gated delta nets and which layers are one, of a family that has them. `config` with its layers.
void read_delta_net(const GgufFile& file, const KeyReader& keys, ModelConfig& config);

}  // namespace minfer
