#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kernels/base/error.h"
#include "kernels/tensor_view.h"
#include "models/gguf/gguf_metadata.h"

namespace minfer {

struct GgufHeader;
struct GgufPart;

/// A GGUF model file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3, little-endian, whole or split
/// (-00001-of-0000N.gguf: give the first part). The file is mapped, not read: opening reads the header, and tensor bytes are read when
/// used. Files are untrusted. On opening, everything is checked against the file's size; a FileError names the file, the key or
/// tensor, the expected and the found value. Immutable, so any thread may read it. Views into it (strings, tensors) live as long as the
/// object.
class GgufFile : public GgufMetadata {
 public:
  static GgufFile open(const std::filesystem::path& path);
  /// A file in memory, e.g. the embedded demo model. `bytes` must outlive the object and start at a multiple of 8; `name` is for messages.
  static GgufFile from_memory(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const;
  uint32_t version() const { return version_; }
  size_t file_bytes() const;  ///< all parts together

  /// Throws FileError if a file shrank, or could not be read, since it was opened. Lost bytes read as
  /// zeros and never cause a crash. So every reader of the file's data calls this afterwards: a loader when it has
  /// copied the weights, an engine that reads them in place with every step. Costs one system call for each part.
  void check_intact() const;

  /// Tensors in file order, across parts. GGUF dims [ne0, ne1, ne2] become cols = ne0, rows = ne1, count =
  /// ne2 (4D is refused).
  std::span<const HostTensor> tensors() const { return tensors_; }
  const HostTensor* find_tensor(std::string_view name) const;

 private:
  using Parts = std::vector<std::shared_ptr<const GgufPart>>;
  GgufFile(Parts parts, GgufHeader header);
  std::string_view tensor_name(uint32_t i) const { return tensors_[i].name; }

  Parts parts_;
  uint32_t version_;
  std::vector<HostTensor> tensors_;  // of all parts
  NameIndex index_;                  // of the tensors
};

}  // namespace minfer
