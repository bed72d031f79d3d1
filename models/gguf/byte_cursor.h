#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace minfer {

static_assert(std::endian::native == std::endian::little, "the reader takes little-endian files as they are");

/// Reads little-endian values one after another from bytes that are not trusted. Every read is checked
/// against the end; a failure is a FileError that names the file, the value, its offset and what was there.
class ByteCursor {
 public:
  /// `bytes` and `file` (a name for messages) outlive the cursor.
  ByteCursor(std::span<const std::byte> bytes, std::string_view file, uint64_t offset = 0)
      : bytes_(bytes), file_(file), offset_(offset) {}

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view file() const { return file_; }
  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  /// The next value; `what` says in a message what it is.
  template <class T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }
  /// A 64-bit length and that many bytes. The view lives as long as the bytes.
  std::string_view read_string(std::string_view what);
  /// Passes over `count` values of `size` bytes each.
  void skip(uint64_t count, uint64_t size, std::string_view what);
  /// Throws unless `count` records of at least `min_bytes` each can follow: before anything is allocated for
  /// them.
  void expect_room(uint64_t count, uint64_t min_bytes, std::string_view what) const;

 private:
  const std::byte* take(uint64_t size, std::string_view what);

  std::span<const std::byte> bytes_;
  std::string_view file_;
  uint64_t offset_;  // never beyond bytes_
};

}  // namespace minfer
