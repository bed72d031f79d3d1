#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "models/gguf/gguf_metadata.h"

namespace minfer {

/// The smallest general.alignment that the specification allows: no element of a tensor is ever misaligned.
inline constexpr uint64_t kMinAlignment = 8;

/// More tensors than any model has; what parsing them costs in memory stays below 40 MB. Holds for the parts
/// of a model together.
inline constexpr uint64_t kMaxTensors = uint64_t{1} << 17;

/// What one GGUF file says: all of a whole model, or one part of a split one.
struct GgufHeader {
  uint32_t version;
  GgufMetadata metadata;
  std::vector<HostTensor> tensors;  ///< in file order, within `bytes` and not overlapping; names may repeat
};

/// Parses the bytes of one file. They start at a multiple of kMinAlignment; they and `file`, its name
/// for messages, outlive the result. Throws FileError for anything malformed or unsupported.
GgufHeader parse_gguf(std::span<const std::byte> bytes, std::string_view file);

}  // namespace minfer
