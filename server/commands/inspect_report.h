#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernels/tensor_view.h"
#include "models/decoder/config/config.h"
#include "models/decoder/weights/model_source.h"
#include "models/gguf/gguf.h"

namespace minfer {

/// The output of `minfer inspect` for people: metadata with arrays and long strings shortened, tensors if `with_tensors`, totals per type.
/// Shapes are row-major: [rows, cols], preceded by the number of matrices if there are several.
std::string inspect_table(const GgufFile& file, bool with_tensors);

/// The same for programs. An array is an object with element_type, count and its first elements.
/// Strings that are not UTF-8 are as in the file: dump() with error_handler_t::replace.
nlohmann::ordered_json inspect_json(const GgufFile& file, bool with_tensors);

/// The metadata as a decoder reads it, layer by layer where layers differ (config_facts()).
std::string shape_table(const ModelConfig& config);
nlohmann::ordered_json shape_json(const ModelConfig& config);

/// The memory of tensors.
struct WeightSizes {
  size_t file_bytes = 0;      ///< in the file
  size_t loaded_bytes = 0;    ///< on the CPU: as in the file, except tensors converted at load
  size_t cuda_bytes = 0;      ///< in the memory of a GPU, with the padding of tiles
  bool is_converted = false;  ///< a GPU keeps some tensors in another type than the CPU
};
WeightSizes weight_sizes(std::span<const HostTensor> tensors);

/// The memory of a running model: its weights as they will be loaded (see tensors_to_load()),
/// and the KV cache for a token and for one sequence of the whole context.
nlohmann::ordered_json memory_plan_json(const ModelConfig& config, std::span<const HostTensor> tensors);
std::string memory_plan_table(const ModelConfig& config, std::span<const HostTensor> tensors);

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
