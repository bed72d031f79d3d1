#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "models/decoder/weights/model_source.h"

namespace minfer {

/// The options of `minfer inspect --plan`.
struct PlanOptions {
  std::vector<int32_t> tokens = {1, 8, 64, 2048};  ///< tokens of a step, each with its own plan
  int32_t context = 1024;                          ///< tokens of each decoding sequence
  std::optional<DType> quantization = {};
};

/// How an H200 computes each op of a step of the model, alone and in bf16: [{tokens, decode_us, prompt_us, ops: [{op, layers, kernel,
/// tile, blocks, launches, us, scratch_bytes}]}], for `tokens` decoding sequences and for one prompt. Throws as load_weights() does.
nlohmann::ordered_json plan_json(const ModelSource& source, const PlanOptions& options);
/// The same for people.
std::string plan_tables(const nlohmann::ordered_json& plans, const PlanOptions& options);

}  // namespace minfer
