#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "kernels/tensor_view.h"
#include "models/decoder/config/config.h"
#include "models/gguf/gguf.h"

namespace minfer {

/// The output of `minfer inspect` for a file, for people: metadata with arrays and
/// long strings shortened, tensors if `with_tensors`, totals per type. Shapes are
/// row-major: [rows, cols], preceded by the number of matrices if there are several.
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

}  // namespace minfer
