#include "server/api/answer/single_answer.h"

#include <nlohmann/json.hpp>

namespace minfer {

SingleStream::SingleStream(const CompletionRequest& request, const ApiContext& context,
                           std::string_view call_prefix)
    : choice_(request, context, call_prefix), usage_(request) {}

void SingleStream::append(int32_t index, const RequestOutput& output, std::string& events) {
  if (finished_) return;
  if (const std::optional<ApiError> failure = failure_of(output)) return append_error(*failure, events);
  usage_.add(index, output);
  std::vector<ChatDelta> deltas;
  choice_.reader.read(output, deltas);
  if (choice_.reader.reasoning_tokens() >= 0) usage_.set_reasoning(index, choice_.reader.reasoning_tokens());
  if (!std::exchange(started_, true)) begin(events);
  for (const ChatDelta& delta : deltas)
    take(delta, events);
  if (const std::optional<AnswerEnd>& reason = choice_.reader.end()) {
    close_part(reason != AnswerEnd::length, events);
    end(*reason, reason == AnswerEnd::stop_string ? output.finish_detail : std::string{}, events);
    finished_ = true;
  }
}

void SingleStream::append_error(const ApiError& error, std::string& events) {
  if (std::exchange(finished_, true)) return;
  fail(error, events);
}

void SingleStream::take(const ChatDelta& delta, std::string& events) {
  if (delta.kind == ChatDelta::Kind::call_end) return close_part(true, events);
  const bool begins = !part_open_ || choice_.parts.begins_part(delta);
  if (begins) close_part(true, events);
  choice_.parts.add(delta);
  if (begins) {
    begin_part(events);
    part_open_ = true;
  }
  if (delta.kind != ChatDelta::Kind::call_begin && !delta.text.empty()) add_text(delta.text, events);
}

void SingleStream::close_part(bool whole, std::string& events) {
  if (!std::exchange(part_open_, false)) return;
  if (whole) choice_.parts.end_last();
  end_part(events);
}

SingleAnswer::SingleAnswer(const CompletionRequest& request, const ApiContext& context,
                           std::string_view call_prefix)
    : choice_(request, context, call_prefix), usage_(request) {}

void SingleAnswer::add(int32_t index, RequestOutput output) {
  if (finished()) return;
  if (std::optional<ApiError> failure = failure_of(output)) throw std::move(*failure);
  usage_.add(index, output);
  std::vector<ChatDelta> deltas;
  choice_.reader.read(output, deltas);
  if (choice_.reader.reasoning_tokens() >= 0) usage_.set_reasoning(index, choice_.reader.reasoning_tokens());
  for (const ChatDelta& delta : deltas)
    choice_.parts.add(delta);
  if (choice_.reader.end() && choice_.reader.end() != AnswerEnd::length) choice_.parts.end_last();
  if (choice_.reader.end() == AnswerEnd::stop_string) stop_string_ = output.finish_detail;
}

std::string SingleAnswer::next_piece() {
  written_ = true;
  return body(*choice_.reader.end(), stop_string_);
}

void begin_event(std::string_view type, std::string& events) {
  events += "event: ";
  events += type;
  events += "\ndata: {\"type\":\"";
  events += type;
  events += '"';
}

std::string_view object_or_empty(std::string_view arguments) {
  const size_t begin = arguments.find_first_not_of(" \t\r\n");
  const bool is_object = begin != std::string_view::npos && arguments[begin] == '{';
  return is_object && nlohmann::json::accept(arguments) ? arguments : "{}";
}

}  // namespace minfer
