#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/chat/answer/chat_answer_parser.h"

namespace minfer::test {

/// The deltas of an answer, joined.
struct ParsedAnswer {
  struct Call {
    std::string name;
    std::string arguments;
    bool is_whole = false;
    bool operator==(const Call&) const = default;
  };
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
  std::string problem;
  /// What in the deltas breaks the interface's contract; empty: nothing.
  std::string violation;
  bool operator==(const ParsedAnswer&) const = default;
};

/// Parses an answer that arrives in these pieces.
ParsedAnswer parse_answer(ChatAnswerParser& parser, const std::vector<std::string_view>& pieces);

/// `text` cut at these sorted places.
std::vector<std::string_view> pieces_of(std::string_view text, const std::vector<size_t>& cuts);

}  // namespace minfer::test
