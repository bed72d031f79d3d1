#pragma once

#include <istream>
#include <optional>
#include <string>
#include <string_view>

namespace minfer {

/// Hands out the whole lines of a stream one after the other and keeps none. Its memory is bounded by the longest line.
class LineReader {
 public:
  static constexpr size_t kMostBytes = 8u << 20;  ///< of a line
  /// Bytes behind a line that may be read, whatever they are.
  static constexpr size_t kPaddingBytes = 64;

  /// `name` stands for the stream in errors. Both outlive this.
  LineReader(std::istream& stream, std::string_view name);

  /// The next whole line without its newline, valid until the next call; nothing: there is none. Throws FileError if it is longer
  /// than kMostBytes.
  std::optional<std::string_view> next();
  /// Where the line that next() gave last stands, as FILE:LINE.
  std::string place() const;
  /// Lines given.
  size_t number() const { return number_; }
  /// Behind the last whole line, once next() has given nothing.
  size_t rest_bytes() const { return end_ - begin_; }

 private:
  bool read_more();

  std::istream& stream_;
  std::string_view name_;
  std::string buffer_;
  size_t begin_ = 0;  ///< of what next() has not given yet,
  size_t end_ = 0;    ///< and its end
  size_t number_ = 0;
};

}  // namespace minfer
