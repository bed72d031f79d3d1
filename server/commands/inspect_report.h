#pragma once

#include <string>

#include <nlohmann/json.hpp>

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

}  // namespace minfer
