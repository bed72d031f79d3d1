#include "profiling/json/line_reader.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace minfer {
namespace {

constexpr size_t kReadBytes = 256u << 10;

}  // namespace

LineReader::LineReader(std::istream& stream, std::string_view name) : stream_(stream), name_(name) {}

std::optional<std::string_view> LineReader::next() {
  size_t searched = begin_;
  while (true) {
    const char* data = buffer_.data();
    const void* newline = end_ > searched ? std::memchr(data + searched, '\n', end_ - searched) : nullptr;
    if (newline != nullptr) {
      const auto end = static_cast<size_t>(static_cast<const char*>(newline) - data);
      const std::string_view line(data + begin_, end - begin_);
      begin_ = end + 1;
      ++number_;
      return line;
    }
    if (rest_bytes() > kMostBytes)
      fail<FileError>("{}:{}: longer than {} bytes", name_, number_ + 1, kMostBytes);
    const size_t rest = rest_bytes();
    if (!read_more()) return std::nullopt;
    searched = begin_ + rest;
  }
}

bool LineReader::read_more() {
  const size_t rest = rest_bytes();
  if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, rest);
  begin_ = 0;
  end_ = rest;
  if (buffer_.size() < rest + kReadBytes + kPaddingBytes)
    buffer_.resize(std::max(2 * buffer_.size(), rest + kReadBytes + kPaddingBytes));
  stream_.read(buffer_.data() + rest, static_cast<std::streamsize>(kReadBytes));
  end_ += static_cast<size_t>(stream_.gcount());
  return end_ > rest;
}

}  // namespace minfer
