#pragma once

#include "models/decoder/config/config.h"
#include "models/decoder/config/config_keys.h"

namespace minfer {

/// Reads the sizes of gated delta nets and which layers are one, of a family that has them. `config` with its layers. Throws FileError
/// as read_config() does.
void read_delta_net(const GgufFile& file, const KeyReader& keys, ModelConfig& config);

}  // namespace minfer
