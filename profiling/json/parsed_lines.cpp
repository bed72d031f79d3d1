#include "profiling/json/parsed_lines.h"

namespace minfer {
namespace {

// A parser keeps some ten times the longest line that it has seen: of long ones it forgets that.
constexpr size_t kKeptCapacity = 64u << 10;

}  // namespace

static_assert(LineReader::kPaddingBytes >= simdjson::SIMDJSON_PADDING);

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
