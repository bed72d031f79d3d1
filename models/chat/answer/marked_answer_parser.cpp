#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/chat/answer/chat_format.h"
#include "models/chat/answer/values/literals.h"

namespace minfer::answers {
namespace {

std::vector<std::string_view> reasoning_openings(std::span<const ReasoningMarkers> reasoning) {
  std::vector<std::string_view> markers;
  for (const ReasoningMarkers& each : reasoning)
    markers.push_back(each.open);
  return markers;
}

/// Parses answers that begin with thoughts between markers and hold calls behind markers: all formats but Harmony. A byte passes first
/// through the thoughts, then, when it is none of them, to the reader of the calls under way or to the text between them.
class MarkedAnswerParser final : public ChatAnswerParser {
 public:
  MarkedAnswerParser(std::span<const CallOpening> calls, std::span<const ReasoningMarkers> reasoning,
                     const ChatAnswerOptions& options)
      : calls_(options.finds_calls ? calls : std::span<const CallOpening>()),
        reasoning_(reasoning),
        options_(options),
        tools_(options_.tools.get()),
        state_(reasoning.empty() ? &Self::take_answer : &Self::take_before_thoughts),
        thoughts_open_(reasoning_openings(reasoning)) {
    std::vector<std::string_view> markers;
    for (const CallOpening& call : calls_) {
      if (call.ends_reasoning) ending_calls_.push_back(&call);
      if (call.marker.empty()) {
        bare_ = &call;
      } else {
        marked_.push_back(&call);
        markers.push_back(call.marker);
      }
    }
    call_markers_ = MarkerFinder(std::move(markers));
    if (!options_.open_thoughts || *options_.open_thoughts >= reasoning_.size()) return;
    begin_thoughts(*options_.open_thoughts);
    is_first_thought_ = false;
  }

  void end() override {
    if (state_ == &Self::take_before_thoughts && options_.begins_in_reasoning) begin_thoughts(0);
    if (state_ == &Self::take_before_thoughts) {
      out_.content(thoughts_open_.text());
    } else if (state_ == &Self::take_thought) {
      give_thoughts(thoughts_open_.text());
      give_thoughts(thoughts_end_.held());
    } else {
      if (reader_ && (out_.in_call() || !reader_->may_end())) give_up_region("cut off");
      for (const char c : call_markers_.held())
        give_text(c);
      if (out_.num_calls() == 0) out_.content(spaces_);
    }
  }

 private:
  using Self = MarkedAnswerParser;
  void take(char c) override { (this->*state_)(c); }

  /// White space, or what may become the marker that opens thoughts.
  void take_before_thoughts(char c) {
    const int32_t found = thoughts_open_.push(c);
    if (found == ExpectedLiteral::kMore) return;
    std::string read = thoughts_open_.text();
    thoughts_open_.clear();
    if (found >= 0) {
      begin_thoughts(static_cast<size_t>(found));
      if (!options_.finds_reasoning) out_.content(read);
      return;
    }
    read += c;
    // No marker: what was read is the beginning of whatever comes without one.
    if (options_.begins_in_reasoning) {
      begin_thoughts(0);
    } else {
      state_ = &Self::take_answer;
    }
    for (const char r : read)
      take(r);
  }

  void take_thought(char c) {
    std::string passed;
    const int32_t found = thoughts_end_.push(c, passed);
    give_thoughts(passed);
    if (found == 0) {
      state_ = options_.finds_reasoning ? &Self::take_behind_thoughts : &Self::take_answer;
      if (!options_.finds_reasoning) out_.content(reasoning_[markers_].close);
    } else if (found > 0) {
      state_ = &Self::take_answer;
      open_region(*ending_calls_[static_cast<size_t>(found - 1)]);
    }
  }

  void take_behind_thoughts(char c) {
    if (is_space(c)) return;
    state_ = &Self::take_answer;
    take_answer(c);
  }

  void begin_thoughts(size_t markers) {
    state_ = &Self::take_thought;
    markers_ = markers;
    std::vector<std::string_view> ends = {reasoning_[markers].close};
    for (const CallOpening* call : ending_calls_)
      ends.push_back(call->marker);
    thoughts_end_ = MarkerFinder(std::move(ends));
  }

  void give_thoughts(std::string_view text) {
    if (!options_.finds_reasoning) return out_.content(text);
    if (text.empty()) return;
    if (is_first_thought_ && text.front() == '\n') text.remove_prefix(1);
    is_first_thought_ = false;
    out_.reasoning(text);
  }

  void take_answer(char c) {
    if (calls_.empty()) {
      out_.content(std::string_view(&c, 1));
    } else if (reader_) {
      take_region(c);
    } else {
      take_text(c);
    }
  }

  void take_text(char c) {
    if (bare_ != nullptr && is_quiet_ && c == bare_->first && call_markers_.held().empty()) {
      open_region(*bare_);
      return take_region(c);
    }
    std::string passed;
    const int32_t found = call_markers_.push(c, passed);
    for (const char p : passed)
      give_text(p);
    if (found != MarkerFinder::kNone) open_region(*marked_[static_cast<size_t>(found)]);
  }

  void take_region(char c) {
    const CallReader::Step step = reader_->push(c);
    if (num_settled_ != out_.num_settled()) {
      num_settled_ = out_.num_settled();
      written_ = reader_->held();
      spaces_.clear();
    } else if (step == CallReader::Step::more) {
      written_ += c;
    }
    if (step == CallReader::Step::more) return;
    if (step == CallReader::Step::done) return close_region();
    if (step == CallReader::Step::ended) {
      const std::string unread = reader_->unread();
      close_region();
      for (const char u : unread)
        take_answer(u);
    } else {
      give_up_region(reader_->problem());
      is_quiet_ = false;
    }
    take_answer(c);
  }

  void give_text(char c) {
    if (is_quiet_ && is_space(c)) {
      spaces_ += c;
      return;
    }
    is_quiet_ = false;
    out_.content(spaces_);
    spaces_.clear();
    out_.content(std::string_view(&c, 1));
  }

  void open_region(const CallOpening& opening) {
    reader_ = make_call_reader(opening, {.out = out_, .tools = tools_});
    written_ = opening.marker;
    num_settled_ = out_.num_settled();
  }

  void close_region() {
    reader_.reset();
    written_.clear();
    spaces_.clear();
    is_quiet_ = true;
  }

  void give_up_region(std::string_view problem) {
    note_problem(problem);
    out_.cut_call();
    reader_.reset();
    for (const char w : written_)
      give_text(w);
    written_.clear();
  }

  const std::span<const CallOpening> calls_;
  const std::span<const ReasoningMarkers> reasoning_;
  const ChatAnswerOptions options_;
  const ToolTypes tools_;

  void (Self::*state_)(char);  ///< takes the next byte
  ExpectedLiteral thoughts_open_;
  MarkerFinder thoughts_end_;  ///< the marker that closes them, then those of calls that end them
  std::vector<const CallOpening*> ending_calls_;
  size_t markers_ = 0;  ///< of reasoning_, between which the thoughts stand
  bool is_first_thought_ = true;

  MarkerFinder call_markers_;
  std::vector<const CallOpening*> marked_;  ///< the calls of call_markers_
  const CallOpening* bare_ = nullptr;       ///< the calls that have no marker
  std::unique_ptr<CallReader> reader_;      ///< of the region under way
  int64_t num_settled_ = 0;                 ///< of out_, when written_ was empty
  std::string written_;   ///< of the region since then: content if it is no call, or goes on no more
  std::string spaces_;    ///< held back: it is dropped if a call follows
  bool is_quiet_ = true;  ///< no text yet, or none since the last call, but spaces_
};

}  // namespace

std::unique_ptr<ChatAnswerParser> make_marked_answer_parser(std::span<const CallOpening> calls,
                                                            std::span<const ReasoningMarkers> reasoning,
                                                            const ChatAnswerOptions& options) {
  return std::make_unique<MarkedAnswerParser>(calls, reasoning, options);
}

}  // namespace minfer::answers
