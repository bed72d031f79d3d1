#include "tests/support/models/parsed_answer.h"

namespace minfer::test {
namespace {

void add_call_delta(const ChatDelta& delta, ParsedAnswer& answer) {
  const auto num_calls = static_cast<int32_t>(answer.calls.size());
  if (delta.kind == ChatDelta::Kind::call_begin) {
    if (delta.call != num_calls) answer.violation = "a call begins out of its turn";
    if (delta.text.empty()) answer.violation = "a call has no name";
    answer.calls.push_back({.name = delta.text, .arguments = {}});
    return;
  }
  if (delta.call != num_calls - 1 || answer.calls.empty() || answer.calls.back().is_whole) {
    answer.violation = "a delta is of a call that is not under way";
    return;
  }
  answer.calls.back().arguments += delta.text;
  answer.calls.back().is_whole = delta.kind == ChatDelta::Kind::call_end;
}

void add_delta(const ChatDelta& delta, ParsedAnswer& answer) {
  if (delta.kind == ChatDelta::Kind::content || delta.kind == ChatDelta::Kind::reasoning) {
    if (delta.call != -1) answer.violation = "text belongs to a call";
    if (delta.text.empty()) answer.violation = "a delta is empty";
    (delta.kind == ChatDelta::Kind::content ? answer.content : answer.reasoning) += delta.text;
  } else {
    add_call_delta(delta, answer);
  }
}

}  // namespace

ParsedAnswer parse_answer(ChatAnswerParser& parser, const std::vector<std::string_view>& pieces) {
  ParsedAnswer answer;
  std::vector<ChatDelta> deltas;
  for (const std::string_view piece : pieces)
    parser.push(piece, deltas);
  parser.finish(deltas);
  for (const ChatDelta& delta : deltas)
    add_delta(delta, answer);
  if (parser.num_calls() != static_cast<int32_t>(answer.calls.size()))
    answer.violation = "num_calls() is wrong";
  answer.problem = parser.problem();
  return answer;
}

std::vector<std::string_view> pieces_of(std::string_view text, const std::vector<size_t>& cuts) {
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    pieces.push_back(text.substr(begin, cut - begin));
    begin = cut;
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

}  // namespace minfer::test
