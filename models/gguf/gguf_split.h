#pragma once

#include <cstdint>
#include <filesystem>

#include "models/gguf/gguf_metadata.h"

namespace minfer {

/// Where a file stands among the parts of a split model; a whole model is part 0 of 1.
struct GgufSplit {
  uint32_t index = 0;  ///< split.no, from 0
  uint32_t count = 1;  ///< split.count
};

/// Reads split.no and split.count. Throws FileError if they contradict each other or the limit on parts.
GgufSplit read_split(const GgufMetadata& metadata, std::string_view file);

/// The path of part `index` (from 0) beside `first`, which is named NAME-00001-of-0000N.gguf with N = count;
/// throws FileError if it is not.
std::filesystem::path split_part_path(const std::filesystem::path& first, uint32_t index, uint32_t count);

}  // namespace minfer
