#include "profiling/json/parsed_lines.h"

namespace minfer {
namespace {

// A parser keeps some ten times the longest line that it has seen: of long ones it forgets that.
constexpr size_t kKeptCapacity = 64u << 10;

}  // namespace

static_assert(LineReader::kPaddingBytes >= simdjson::SIMDJSON_PADDING);

ParsedLines::ParsedLines(std::istream& stream, std::string_view name) : lines_(stream, name) {
  for (Batch& batch : batches_)
    free_.push_back(&batch);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

ParsedLines::~ParsedLines() {
  thread_.request_stop();
}

const ParsedLines::Line* ParsedLines::next() {
  while (taking_ == nullptr || taken_ == taking_->used) {
    if (taking_ != nullptr && taking_->error) std::rethrow_exception(taking_->error);
    if (taking_ != nullptr && taking_->is_last) return nullptr;
    std::unique_lock lock(mutex_);
    if (taking_ != nullptr) {
      free_.push_back(taking_);
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return !full_.empty(); });
    taking_ = full_.front();
    full_.pop_front();
    taken_ = 0;
  }
  return &taking_->slots[taken_++].line;
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

void ParsedLines::run(const std::stop_token& stop) {
  bool goes_on = true;
  while (goes_on) {
    Batch* batch = nullptr;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return !free_.empty(); })) return;
      batch = free_.front();
      free_.pop_front();
    }
    try {
      fill(*batch);
    } catch (...) {
      batch->error = std::current_exception();
    }
    goes_on = !batch->is_last && !batch->error;
    {
      const std::lock_guard lock(mutex_);
      full_.push_back(batch);
    }
    changed_.notify_all();
  }
}

}  // namespace minfer
