#include "profiling/json/parsed_lines.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.h"

namespace minfer {
namespace {

constexpr size_t kReadBytes = 256u << 10;
// A parser keeps some ten times the longest line that it has seen: of long ones it forgets that.
constexpr size_t kKeptCapacity = 64u << 10;

}  // namespace

static_assert(LineReader::kPaddingBytes >= simdjson::SIMDJSON_PADDING);

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

void ParsedLines::parse_ahead() {
  parsed_ = std::async(std::launch::async, [this, &batch = batches_[1 - taking_]] {
    try {
      fill(batch);
    } catch (...) {
      batch.error = std::current_exception();
    }
  });
}

const ParsedLines::Line* ParsedLines::next() {
  while (taken_ == batches_[taking_].used) {
    if (batches_[taking_].error) std::rethrow_exception(batches_[taking_].error);
    if (batches_[taking_].is_last) return nullptr;
    parsed_.get();
    taking_ = 1 - taking_;
    taken_ = 0;
    if (!batches_[taking_].is_last && !batches_[taking_].error) parse_ahead();
  }
  return &batches_[taking_].slots[taken_++].line;
}

void ParsedLines::fill(Batch& batch) {
  batch.used = 0;
  size_t bytes = 0;
  while (batch.used < kLinesOfBatch && bytes < kBytesOfBatch) {
    const auto text = lines_.next();
    if (!text) {
      batch.is_last = true;
      return;
    }
    Slot& slot = batch.slots[batch.used++];
    if (slot.parser.capacity() > kKeptCapacity) slot.parser = simdjson::dom::parser();
    const auto parsed = slot.parser.parse(text->data(), text->size(), false);
    slot.line = {.number = lines_.number(), .is_valid = parsed.error() == simdjson::SUCCESS, .json = {}};
    if (slot.line.is_valid) slot.line.json = parsed.value_unsafe();
    bytes += text->size();
  }
}

}  // namespace minfer
