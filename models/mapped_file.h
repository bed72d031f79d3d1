#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace minfer {

/// Owns a read-only mapping of a whole file. Move-only; views of the bytes stay valid when it is moved.
class MappedFile {
 public:
  /// Throws FileError if the file is missing, unreadable, empty or not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace minfer
