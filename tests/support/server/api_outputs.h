#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/request/request.h"
#include "server/api/answer/answer_writer.h"

namespace minfer::test {

/// An engine's output of one choice, as the responses read it.
inline RequestOutput output(std::string text, std::vector<TokenId> tokens, int32_t output_tokens,
                            std::optional<FinishReason> finish = {}, std::string detail = {}) {
  RequestOutput made;
  made.text = std::move(text);
  made.tokens = std::move(tokens);
  made.output_tokens = output_tokens;
  made.finish = finish;
  made.finish_detail = std::move(detail);
  return made;
}

inline RequestOutput with_logprobs(RequestOutput made, std::vector<SampledToken> logprobs) {
  made.logprobs = std::move(logprobs);
  return made;
}

inline RequestOutput with_cached(RequestOutput made, int32_t cached_tokens) {
  made.cached_tokens = cached_tokens;
  return made;
}

/// Adds times to an output: it waited 1 ms, its prompt took 20 ms, and its tokens took `predicted_ms` since.
inline RequestOutput with_times(RequestOutput made, int64_t predicted_ms, SpeculationCounts drafted = {}) {
  made.arrival_ns = 5'000'000;
  made.first_scheduled_ns = 6'000'000;
  made.first_token_ns = 26'000'000;
  made.last_token_ns = made.first_token_ns + predicted_ms * 1'000'000;
  made.drafted = drafted;
  return made;
}

/// Takes the next output of a choice of a stream; a failed one ends it with its error.
inline void append(AnswerWriter& stream, int32_t choice, const RequestOutput& output, std::string& events) {
  try {
    stream.take(choice, output, events);
  } catch (const ApiError& error) {
    stream.append_error(error, events);
  }
}

/// Takes the next output of a choice of a whole answer.
inline void add(AnswerWriter& answer, int32_t choice, const RequestOutput& output) {
  std::string none;
  answer.take(choice, output, none);
}

/// The body of a response whose choices have all ended.
inline std::string whole_body(AnswerWriter& response) {
  std::string body;
  while (response.next_piece(body)) {
  }
  return body;
}

/// The events of a stream, without "data: " and the empty lines. Throws std::logic_error if the stream
/// does not consist of whole events.
inline std::vector<std::string> split_events(std::string_view stream) {
  std::vector<std::string> events;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    if (!stream.starts_with("data: ") || end == std::string_view::npos)
      throw std::logic_error("no whole event");
    events.emplace_back(stream.substr(6, end - 6));
    stream.remove_prefix(end + 2);
  }
  return events;
}

}  // namespace minfer::test
