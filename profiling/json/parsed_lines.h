#pragma once

#include <array>
#include <exception>
#include <future>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

#include "profiling/json/json_field.h"

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

/// The lines of a stream as JSON, in batches. While the consumer takes the lines of one, another thread reads and parses the next; that is
/// half of the work of reading a profile. A batch ends with the line that makes it longer than kBytesOfBatch. One thread calls next().
class ParsedLines {
 public:
  struct Line {
    size_t number = 0;      ///< from 1
    bool is_valid = false;  ///< the line is JSON
    simdjson::dom::element json;
  };

  /// Errors call the stream `name`. Both arguments must outlive this.
  ParsedLines(std::istream& stream, std::string_view name) : lines_(stream, name) { parse_ahead(); }
  ParsedLines(const ParsedLines&) = delete;
  ParsedLines& operator=(const ParsedLines&) = delete;

  /// The next whole line, valid until the next call; null: there is none. Throws the errors of LineReader.
  const Line* next();
  /// Valid once next() has returned null: the number of lines, and of bytes behind the last whole line.
  size_t number() const { return lines_.number(); }
  size_t rest_bytes() const { return lines_.rest_bytes(); }

 private:
  static constexpr size_t kLinesOfBatch = 64;
  static constexpr size_t kBytesOfBatch = 512u << 10;
  struct Slot {
    simdjson::dom::parser parser;
    Line line;
  };
  struct Batch {
    std::array<Slot, kLinesOfBatch> slots;
    size_t used = 0;
    bool is_last = false;
    std::exception_ptr error;  ///< behind the lines
  };
  void parse_ahead();
  void fill(Batch& batch);

  LineReader lines_;
  std::array<Batch, 2> batches_;
  size_t taking_ = 0;  ///< the batch whose lines next() returns
  size_t taken_ = 0;
  std::future<void> parsed_;  ///< of the other batch; last: everything above outlives the thread
};

}  // namespace minfer
