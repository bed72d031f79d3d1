#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "models/chat/answer/chat_answer_parser.h"

namespace minfer::answer {

/// Collects the output of an answer's readers. Text of one kind within one push() becomes one delta.
class DeltaWriter {
 public:
  /// Appends the following output to `deltas`, which must live until the next begin_push().
  void begin_push(std::vector<ChatDelta>& deltas);

  void content(std::string_view text) { append(ChatDelta::Kind::content, text); }
  void reasoning(std::string_view text) { append(ChatDelta::Kind::reasoning, text); }
  void begin_call(std::string_view function);
  /// More arguments of the current call.
  void arguments(std::string_view text);
  void end_call();
  /// The current call ends before it is whole.
  void cut_call() { in_call_ = false; }

  bool in_call() const { return in_call_; }
  int32_t num_calls() const { return num_calls_; }
  /// Marks everything read so far as settled: it will not come back as content. That is so once a part of a call has been given out.
  void settle() { ++num_settled_; }
  /// The number of calls to settle().
  int64_t num_settled() const { return num_settled_; }

 private:
  void append(ChatDelta::Kind kind, std::string_view text);

  std::vector<ChatDelta>* deltas_ = nullptr;
  size_t first_of_push_ = 0;
  int32_t num_calls_ = 0;
  int64_t num_settled_ = 0;
  bool in_call_ = false;
};

}  // namespace minfer::answer
