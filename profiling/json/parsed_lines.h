#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <istream>
#include <mutex>
#include <string_view>
#include <thread>

#include "profiling/json/json_field.h"
#include "profiling/json/line_reader.h"

namespace minfer {

/// The lines of a stream as JSON. A thread of its own reads and parses them some lines ahead of the consumer; that is half of the
/// work of reading a profile. At most kBatches batches are in memory. Each batch ends with the line that makes it longer than
/// kBytesOfBatch. One thread calls everything but the constructor.
class ParsedLines {
 public:
  struct Line {
    size_t number = 0;      ///< from 1
    bool is_valid = false;  ///< the line is JSON
    simdjson::dom::element json;
  };

  /// Errors call the stream `name`. Both arguments must outlive this.
  ParsedLines(std::istream& stream, std::string_view name);
  ~ParsedLines();
  ParsedLines(const ParsedLines&) = delete;
  ParsedLines& operator=(const ParsedLines&) = delete;

  /// The next whole line, valid until the next call; null: there is none. Throws the errors of LineReader.
  const Line* next();
  /// Valid once next() has returned null: the number of lines, and of bytes behind the last whole line.
  size_t number() const { return lines_.number(); }
  size_t rest_bytes() const { return lines_.rest_bytes(); }

 private:
  static constexpr size_t kBatches = 3;
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
  void run(const std::stop_token& stop);
  void fill(Batch& batch);

  LineReader lines_;
  std::array<Batch, kBatches> batches_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Batch*> free_;
  std::deque<Batch*> full_;
  Batch* taking_ = nullptr;  ///< the batch whose lines next() returns
  size_t taken_ = 0;
  std::jthread thread_;  ///< last: everything above outlives it
};

}  // namespace minfer
