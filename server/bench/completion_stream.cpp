#include "server/bench/completion_stream.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "server/bench/json_skim.h"

namespace minfer {
namespace {

constexpr size_t kMaxErrorBody = 4096;
constexpr size_t kMaxMessage = 200;
/// Where servers put generated text in a chat's delta; the last three are of reasoning and of tool calls.
constexpr std::string_view kDeltaFields[] = {"content", "reasoning_content", "reasoning", "tool_calls"};

}  // namespace

CompletionStream::CompletionStream(bool is_chat, bool keep_text, std::function<void()> on_done)
    : is_chat_(is_chat), keep_text_(keep_text), on_done_(std::move(on_done)) {}

void CompletionStream::on_body(std::string_view bytes, int64_t time_ns) {
  if (status_ == 200) {
    events_.feed(bytes, [&](std::string_view data) { on_event(data, time_ns); });
  } else {
    body_ += bytes.substr(0, kMaxErrorBody - std::min(kMaxErrorBody, body_.size()));
  }
}

void CompletionStream::on_event(std::string_view data, int64_t time_ns) {
  if (data == "[DONE]") return;
  static constexpr std::string_view kNames[] = {"error", "choices", "usage"};
  std::string_view members[3];
  json_members(data, kNames, members);
  const auto [error, choices, usage] = members;
  if (json_present(error)) {
    if (stream_error_.empty()) stream_error_ = data;
    return;
  }
  const std::string_view choice = json_first(choices);
  if (!choice.empty() && holds_output(choice)) {
    record_.chunk_ns.push_back(time_ns);
    if (keep_text_) add_text(choice);
  }
  if (json_present(usage)) {
    record_.output_tokens = json_integer(json_member(usage, "completion_tokens"), record_.output_tokens);
    record_.input_tokens = json_integer(json_member(usage, "prompt_tokens"), record_.input_tokens);
  }
}

bool CompletionStream::holds_output(std::string_view choice) const {
  if (!is_chat_) return true;
  const std::string_view delta = json_member(choice, "delta");
  const bool names_role = json_present(json_member(delta, "role"));
  return std::ranges::any_of(kDeltaFields, [&](std::string_view field) {
    const std::string_view value = json_member(delta, field);
    return json_present(value) && !(names_role && value == "\"\"");
  });
}

void CompletionStream::add_text(std::string_view choice) {
  record_.text += json_text(is_chat_ ? json_member(json_member(choice, "delta"), "content")
                                     : json_member(choice, "text"));
}

void CompletionStream::on_end(const std::string& error) {
  conclude(error);
  const std::function<void()> on_done = std::move(on_done_);  // it may end the life of this object
  on_done();
}

void CompletionStream::conclude(const std::string& transport_error) {
  if (!stream_error_.empty()) {
    record_.error = "error in the stream";
    record_.error_detail = error_message(stream_error_);
  } else if (!transport_error.empty()) {
    record_.error = transport_error;
  } else if (status_ != 200) {
    record_.error = fmt::format("HTTP {}", status_);
    record_.error_detail = error_message(body_);
  } else if (record_.chunk_ns.empty()) {
    record_.error = "no output";
  }
  // A server that reports no usage: as many tokens as responses, at least.
  if (record_.output_tokens == 0) record_.output_tokens = static_cast<int64_t>(record_.chunk_ns.size());
}

std::string error_message(std::string_view body) {
  const std::string_view error = json_member(body, "error");
  const std::string text = json_text(error.starts_with('{') ? json_member(error, "message") : error);
  return (text.empty() ? std::string(body) : text).substr(0, kMaxMessage);
}

}  // namespace minfer
