#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "models/decoder/config.h"

namespace minfer {

/// What running a model takes: its weights, and the KV cache for a token and for one sequence of the whole
/// context.
nlohmann::ordered_json memory_plan_json(const ModelConfig& config, size_t weight_bytes);
std::string memory_plan_table(const ModelConfig& config, size_t weight_bytes);

}  // namespace minfer
