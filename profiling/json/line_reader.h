#pragma once

#include <istream>
#include <optional>
#include <string>
#include <string_view>

namespace minfer {

/// Returns the whole lines of a stream one after the other, and keeps none. The longest line bounds its memory.
class LineReader {
 public:
  static constexpr size_t kMostBytes = 8u << 20;  ///< of a line
  /// The number of bytes behind a line that may be read; their values are arbitrary.
  static constexpr size_t kPaddingBytes = 64;

  /// Errors call the stream `name`. Both arguments must outlive this.
  LineReader(std::istream& stream, std::string_view name);

  /// The next whole line without its newline, valid until the next call; no value: there is none. Throws FileError if the line is longer
  /// than kMostBytes.
  std::optional<std::string_view> next();
  /// The number of lines returned so far.
  size_t number() const { return number_; }
  /// The number of bytes behind the last whole line, once next() has returned no value.
  size_t rest_bytes() const { return end_ - begin_; }

 private:
  bool read_more();

  std::istream& stream_;
  std::string_view name_;
  std::string buffer_;
  size_t begin_ = 0;  ///< begin of the bytes that next() has not returned yet,
  size_t end_ = 0;    ///< and their end
  size_t number_ = 0;
};

}  // namespace minfer
