#include "server/api/answer/answer_writer.h"

#include <nlohmann/json.hpp>

namespace minfer {

void SingleWriter::take(int32_t, RequestOutput output, std::string& events) {
  if (finished_) return;
  if (std::optional<ApiError> failure = failure_of(output)) throw std::move(*failure);
  std::vector<ChatDelta> deltas;
  choice_.reader.read(output, deltas);
  usage_.add(0, output, choice_.reader.reasoning_tokens());
  if (streams_ && !std::exchange(started_, true)) begin(events);
  for (const ChatDelta& delta : deltas)
    streams_ ? take_delta(delta, events) : choice_.parts.add(delta);
  const std::optional<AnswerEnd>& why = choice_.reader.end();
  if (!why) return;
  finished_ = true;
  if (why == AnswerEnd::stop_string) stop_string_ = output.finish_detail;
  if (why != AnswerEnd::length) choice_.parts.end_last();
  if (!streams_) return;
  close_part(events);
  end(*why, events);
}

void SingleWriter::take_delta(const ChatDelta& delta, std::string& events) {
  const bool begins = choice_.parts.begins_part(delta);
  if (begins) {
    choice_.parts.end_last();
    close_part(events);
  }
  choice_.parts.add(delta);
  if (delta.kind == ChatDelta::Kind::call_end) return close_part(events);
  if (begins) begin_part(events);
  part_open_ = true;
  if (delta.kind != ChatDelta::Kind::call_begin && !delta.text.empty()) add_text(delta.text, events);
}

void SingleWriter::close_part(std::string& events) {
  if (std::exchange(part_open_, false)) end_part(events);
}

void begin_event(std::string_view type, std::string& events) {
  events += fmt::format("event: {0}\ndata: {{\"type\":\"{0}\"", type);
}

std::string_view object_or_empty(std::string_view arguments) {
  const size_t begin = arguments.find_first_not_of(" \t\r\n");
  const bool is_object = begin != std::string_view::npos && arguments[begin] == '{';
  return is_object && nlohmann::json::accept(arguments) ? arguments : "{}";
}

}  // namespace minfer
