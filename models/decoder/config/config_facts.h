#pragma once

#include <string>
#include <vector>

#include "models/decoder/config/config.h"

namespace minfer {

/// A fact about a model's shape, for people and for ranks that compare their models.
struct ConfigFact {
  std::string name;
  std::string value;
};

/// All facts that a decoder gets about a model, in a few lines: equal layers are one line. Omits facts that the family does not use.
std::vector<ConfigFact> config_facts(const ModelConfig& config);

}  // namespace minfer
