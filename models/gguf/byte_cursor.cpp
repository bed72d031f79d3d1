#include "models/gguf/byte_cursor.h"

#include "kernels/error.h"
#include "models/gguf/printable.h"

namespace minfer {

const std::byte* ByteCursor::take(uint64_t size, std::string_view what) {
  if (size > remaining()) {
    fail<FileError>("{}: truncated: {} needs {} bytes at offset {}, but {} are left", file_, printable(what),
                    size, offset_, remaining());
  }
  const std::byte* at = bytes_.data() + offset_;
  offset_ += size;
  return at;
}

std::string_view ByteCursor::read_string(std::string_view what) {
  const auto length = read<uint64_t>(what);
  const auto* text = reinterpret_cast<const char*>(take(length, what));
  return {text, static_cast<size_t>(length)};
}

void ByteCursor::skip(uint64_t count, uint64_t size, std::string_view what) {
  expect_room(count, size, what);
  take(count * size, what);  // fits: no more than what is left
}

void ByteCursor::expect_room(uint64_t count, uint64_t min_bytes, std::string_view what) const {
  if (count > remaining() / min_bytes) {
    fail<FileError>(
        "{}: truncated: {} has {} items of at least {} bytes each at offset {}, but {} bytes are left", file_,
        printable(what), count, min_bytes, offset_, remaining());
  }
}

}  // namespace minfer
