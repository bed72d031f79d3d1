#pragma once

#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/api/answer/answer_writer.h"
#include "tests/support/server/api_outputs.h"

namespace minfer::test {

/// One tool, in the form of /v1/chat/completions.
inline constexpr const char* kChatTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";

/// A text as an engine outputs it: in pieces of random lengths, one token a byte.
inline std::vector<RequestOutput> random_outputs(std::string_view text, std::mt19937& random,
                                                 FinishReason finish = FinishReason::stop,
                                                 const std::string& detail = {}) {
  std::vector<RequestOutput> outputs(1);
  for (size_t i = 0; i < text.size(); ++i) {
    RequestOutput& last = outputs.back();
    last.text += text[i];
    last.tokens.push_back(static_cast<uint8_t>(text[i]));
    last.output_tokens = static_cast<int32_t>(i + 1);
    if (i + 1 < text.size() && random() % 4 == 0) outputs.emplace_back();
  }
  outputs.back().finish = finish;
  outputs.back().finish_detail = detail;
  return outputs;
}

/// The data of a stream of named events; each has a type, which the event's name repeats.
inline std::vector<nlohmann::json> split_named_events(std::string_view stream) {
  std::vector<nlohmann::json> events;
  while (!stream.empty()) {
    const size_t line = stream.find('\n');
    const size_t end = stream.find("\n\n");
    if (!stream.starts_with("event: ") || end == std::string_view::npos ||
        !stream.substr(line + 1).starts_with("data: "))
      throw std::logic_error("no whole event: " + std::string(stream));
    events.push_back(nlohmann::json::parse(stream.substr(line + 7, end - line - 7)));
    if (events.back()["type"] != stream.substr(7, line - 7))
      throw std::logic_error("an event of another name than its type: " + std::string(stream.substr(0, end)));
    stream.remove_prefix(end + 2);
  }
  return events;
}

/// All events of an answer.
inline std::string stream_of(AnswerWriter& stream, const std::vector<RequestOutput>& outputs) {
  std::string events;
  for (const RequestOutput& each : outputs)
    append(stream, 0, each, events);
  return events;
}

/// The body of an answer.
inline std::string body_of(AnswerWriter& answer, const std::vector<RequestOutput>& outputs) {
  for (const RequestOutput& each : outputs)
    add(answer, 0, each);
  return whole_body(answer);
}

}  // namespace minfer::test
