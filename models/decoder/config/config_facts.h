#pragma once

#include <string>
#include <vector>

#include "models/decoder/config/config.h"

namespace minfer {

/// Something of a model's shape, for people and for ranks that compare what they run.
struct ConfigFact {
  std::string name;
  std::string value;
};

/// All that a decoder is told of a model, in a few lines: layers that are alike are one. What a family does not use is left out.
std::vector<ConfigFact> config_facts(const ModelConfig& config);

}  // namespace minfer
