#include "server/bench/sse_parser.h"

namespace minfer {
namespace {

constexpr std::string_view kData = "data:";

/// One space behind the colon is not part of the value.
std::string_view without_space(std::string_view value) {
  if (value.starts_with(' ')) value.remove_prefix(1);
  return value;
}

}  // namespace

bool SseParser::take_whole_event(std::string_view& piece, std::string_view& data) const {
  if (!line_.empty() || has_data_ || after_cr_ || !piece.starts_with(kData)) return false;
  const size_t line_end = piece.find('\n');
  if (line_end == std::string_view::npos) return false;
  std::string_view line = piece.substr(0, line_end);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.find('\r') != std::string_view::npos) return false;
  const std::string_view rest = piece.substr(line_end + 1);
  const size_t empty_line = rest.starts_with('\n') ? 1 : rest.starts_with("\r\n") ? 2 : 0;
  if (empty_line == 0) return false;
  data = without_space(line.substr(kData.size()));
  piece = rest.substr(empty_line);
  return true;
}

bool SseParser::take_line(std::string_view& piece) {
  if (after_cr_) {
    after_cr_ = false;
    if (piece.front() == '\n') {
      piece.remove_prefix(1);
      return false;
    }
  }
  const size_t end = piece.find_first_of("\r\n");
  line_ += piece.substr(0, end);
  if (end == std::string_view::npos) {
    piece = {};
    return false;
  }
  after_cr_ = piece[end] == '\r';
  piece.remove_prefix(end + 1);
  return end_line();
}

bool SseParser::end_line() {
  if (line_.empty()) {
    const bool ends_event = has_data_;
    has_data_ = false;
    return ends_event;
  }
  const bool is_data = line_ == "data" || line_.starts_with(kData);
  if (is_data) {
    if (has_data_) data_ += '\n';
    if (line_.size() > kData.size()) data_ += without_space(std::string_view(line_).substr(kData.size()));
    has_data_ = true;
  }
  line_.clear();
  return false;
}

}  // namespace minfer
