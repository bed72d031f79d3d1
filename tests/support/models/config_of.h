#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "models/decoder/config/config.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/refusal.h"

/// The configuration that read_config() makes from a model file's metadata.
namespace minfer::test {

inline ModelConfig config_of(const ModelParts& model) {
  const std::vector<std::byte> bytes = model.build();
  return read_config(GgufFile::from_memory(bytes, "model.gguf"));
}

/// The message with which a model is refused; empty: it is accepted.
inline std::string refusal(const ModelParts& model) {
  return refusal_of<FileError>([&] { config_of(model); });
}

inline ModelParts with(std::string_view key, const ModelParts::Value& value,
                       ModelParts model = tiny_model()) {
  model.keys[std::string(key)] = value;
  return model;
}

}  // namespace minfer::test
