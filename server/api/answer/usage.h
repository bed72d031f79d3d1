#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/request/request.h"
#include "profiling/json/json_text.h"
#include "server/api/fields/api_error.h"
#include "server/api/request/completion_request.h"

namespace minfer {

/// Where the time of a choice went. With several choices, each time is the slowest one's. 0: not known yet.
struct AnswerTimes {
  int64_t queue_ns = 0;      ///< until a step computed something for it
  int64_t prompt_ns = 0;     ///< from then on to its first token
  int64_t predicted_ns = 0;  ///< from then on to its newest one
  void take_slower(const RequestOutput& output);
};

/// Tokens a request cost so far. The prompt of several choices counts once.
struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;      ///< prompt tokens from the prefix cache; part of prompt_tokens
  int64_t reasoning_tokens = -1;  ///< part of completion_tokens; -1: nobody looks for reasoning
  int64_t draft_tokens = 0;       ///< checked draft tokens
  int64_t accepted_tokens = 0;    ///< of these, the accepted ones
  AnswerTimes times = {};
};

/// Adds up the usage of a request's choices from their outputs.
class UsageCount {
 public:
  explicit UsageCount(const CompletionRequest& request);
  /// `reasoning_tokens`: of the choice so far.
  void add(int32_t choice, const RequestOutput& output, int64_t reasoning_tokens);
  Usage total() const { return total_; }
  /// The usage of one choice by itself, for events that tell the usage so far.
  const Usage& of(int32_t choice) const { return choices_[static_cast<size_t>(choice)]; }

 private:
  const int32_t num_answers_;  ///< to each prompt
  std::vector<Usage> choices_;
  Usage total_;
};

/// Why the answer that `output` ends failed: refused by the engine (400), failed
/// in it (500) or cancelled by the server (503). Absent for every other output.
std::optional<ApiError> failure_of(const RequestOutput& output);

/// "timings" as llama-server: {"cache_n","prompt_n","prompt_ms",...,"predicted_n",...}; draft_n, draft_n_accepted if drafts were checked
void write_timings(JsonText& json, const Usage& usage);

}  // namespace minfer
