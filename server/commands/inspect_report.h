#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "kernels/tensor_view.h"
#include "models/decoder/config/config.h"
#include "models/gguf/gguf.h"

namespace minfer {

/// What `minfer inspect` says of a file, for people: metadata with arrays and long strings shortened, tensors
/// if `with_tensors`, totals per type. Shapes are row-major: [rows, cols], with the number of matrices before
/// them if there are several.
std::string inspect_table(const GgufFile& file, bool with_tensors);

/// The same for programs. An array is an object with element_type, count and its first elements. Strings that
/// are not UTF-8 stand as in the file: dump() with error_handler_t::replace.
nlohmann::ordered_json inspect_json(const GgufFile& file, bool with_tensors);

/// What a decoder makes of the metadata, layer by layer where these differ (config_facts()).
std::string shape_table(const ModelConfig& config);
nlohmann::ordered_json shape_json(const ModelConfig& config);

/// What tensors take.
struct WeightSizes {
  size_t file_bytes = 0;      ///< in the file
  size_t loaded_bytes = 0;    ///< on the CPU: as in the file, but for those that become another type at load
  size_t cuda_bytes = 0;      ///< in the memory of a GPU, with what fills up tiles
  bool is_converted = false;  ///< a GPU keeps any of them in another type than the CPU
};
WeightSizes weight_sizes(std::span<const HostTensor> tensors);

/// What running a model takes: its weights as they are to be loaded (see tensors_to_load()), and the KV cache for a token and for one
/// sequence of the whole context.
nlohmann::ordered_json memory_plan_json(const ModelConfig& config, std::span<const HostTensor> tensors);
std::string memory_plan_table(const ModelConfig& config, std::span<const HostTensor> tensors);

}  // namespace minfer
