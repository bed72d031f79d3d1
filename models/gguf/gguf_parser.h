#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/tensor_view.h"
#include "models/gguf/gguf_metadata.h"

namespace minfer {

/// The smallest general.alignment that the specification allows: no element of a tensor is ever misaligned.
inline constexpr uint64_t kMinAlignment = 8;

/// More tensors than any model has; parsing them takes less than 40 MB of memory. The limit covers all parts of a model together.
inline constexpr uint64_t kMaxTensors = uint64_t{1} << 17;

/// The contents of one GGUF file: a whole model, or one part of a split model.
struct GgufHeader {
  uint32_t version;
  GgufMetadata metadata;
  std::vector<HostTensor> tensors;  ///< in file order, within `bytes` and not overlapping; names may repeat
};

/// Parses the bytes of one file. `bytes` starts at a multiple of kMinAlignment; `bytes` and `file`, the name
/// for messages, must outlive the result. Throws FileError for anything malformed or unsupported.
GgufHeader parse_gguf(std::span<const std::byte> bytes, std::string_view file);

/// The position of a file among the parts of a split model; a whole model is part 0 of 1.
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
