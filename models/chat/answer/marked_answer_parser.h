#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/chat/answer/chat_answer_parser.h"
#include "models/chat/answer/chat_format.h"
#include "models/chat/answer/delta_writer.h"
#include "models/chat/answer/values/literals.h"

namespace minfer::answer {

/// Parses answers that begin with thoughts between markers and hold calls behind markers: all formats but Harmony. A byte passes first
/// through the thoughts, then, when it is none of them, to the reader of the calls under way or to the text between them.
class MarkedAnswerParser final : public ChatAnswerParser {
 public:
  MarkedAnswerParser(std::span<const CallOpening> calls, std::span<const ReasoningMarkers> reasoning,
                     const ChatAnswerOptions& options);
  void push(std::string_view text, std::vector<ChatDelta>& deltas) override;
  void finish(std::vector<ChatDelta>& deltas) override;

 private:
  enum class Thoughts {
    before,  ///< white space, or what may become the marker that opens them
    within,
    behind,  ///< white space
    over,    ///< all that comes is answer
  };

  void take(char c);
  void take_before_thoughts(char c);
  void take_thought(char c);
  void begin_thoughts(size_t markers);
  void give_thoughts(std::string_view text);

  void take_answer(char c);
  void take_text(char c);
  void take_region(char c);
  void give_text(char c);
  void open_region(const CallOpening& opening, std::string written);
  void close_region();
  void give_up_region(std::string_view problem);

  const std::span<const CallOpening> calls_;
  const std::span<const ReasoningMarkers> reasoning_;
  const ChatAnswerOptions options_;
  const ToolTypes tools_;
  DeltaWriter out_;

  Thoughts thoughts_;
  ExpectedLiteral thoughts_open_;
  MarkerFinder thoughts_end_;  ///< the marker that closes them, then those of calls that end them
  std::vector<const CallOpening*> ending_calls_;
  size_t markers_ = 0;  ///< of reasoning_, between which the thoughts stand
  bool is_first_thought_ = true;

  MarkerFinder call_markers_;
  const CallOpening* bare_ = nullptr;   ///< the calls that have no marker
  std::unique_ptr<CallReader> reader_;  ///< of the region under way
  int64_t num_settled_ = 0;             ///< of out_, when written_ was empty
  std::string written_;   ///< of the region since then: content if it is no call, or goes on no more
  std::string spaces_;    ///< held back: it is dropped if a call follows
  bool is_quiet_ = true;  ///< no text yet, or none since the last call, but spaces_
};

}  // namespace minfer::answer
