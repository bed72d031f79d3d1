#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/api/answer/answer_reader.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/answer/usage.h"

namespace minfer {

/// Streams of APIs whose answers have one choice, made of parts that begin and end: thoughts, text, calls, one after the other.
class SingleStream : public AnswerStream {
 public:
  /// `call_prefix`: begins the ids of calls.
  SingleStream(const CompletionRequest& request, const ApiContext& context, std::string_view call_prefix);

  void append(int32_t choice, const RequestOutput& output, std::string& events) final;
  void append_error(const ApiError& error, std::string& events) final;
  bool finished() const final { return finished_; }
  bool ended(int32_t) const final { return finished_; }
  std::string problem() const final { return choice_.reader.problem(); }

 protected:
  /// The events in front of everything else.
  virtual void begin(std::string& events) = 0;
  /// Begins the last of parts().
  virtual void begin_part(std::string& events) = 0;
  /// Adds more text to that part, which already holds it.
  virtual void add_text(std::string_view text, std::string& events) = 0;
  /// Ends that part: whole, or cut where the answer is cut.
  virtual void end_part(std::string& events) = 0;
  /// The events after everything else. `stop_string`: the stop string that ended the answer; else empty.
  virtual void end(AnswerEnd end, const std::string& stop_string, std::string& events) = 0;
  virtual void fail(const ApiError& error, std::string& events) = 0;

  const std::vector<AnswerPart>& parts() const { return choice_.parts.parts(); }
  Usage usage() const { return usage_.total(); }

 private:
  void take(const ChatDelta& delta, std::string& events);
  void close_part(bool whole, std::string& events);

  ParsedChoice choice_;
  UsageCount usage_;
  bool started_ = false;
  bool part_open_ = false;
  bool finished_ = false;
};

/// Whole answers of such APIs.
class SingleAnswer : public WholeAnswer {
 public:
  SingleAnswer(const CompletionRequest& request, const ApiContext& context, std::string_view call_prefix);

  void add(int32_t choice, RequestOutput output) final;
  bool finished() const final { return choice_.reader.end().has_value(); }
  bool ended(int32_t) const final { return finished(); }
  /// Returns the whole body: there are no logprobs, so it is not much longer than its text.
  std::string next_piece() final;
  bool written() const final { return written_; }
  std::string problem() const final { return choice_.reader.problem(); }

 protected:
  virtual std::string body(AnswerEnd end, const std::string& stop_string) = 0;

  const std::vector<AnswerPart>& parts() const { return choice_.parts.parts(); }
  std::string text(AnswerPart::Kind kind) const { return choice_.parts.text(kind); }
  Usage usage() const { return usage_.total(); }

 private:
  ParsedChoice choice_;
  UsageCount usage_;
  std::string stop_string_;
  bool written_ = false;
};

/// Begins a server-sent event of that type; the type is its data's first member. The caller adds the other members and kEventEnd.
void begin_event(std::string_view type, std::string& events);
inline constexpr std::string_view kEventEnd = "}\n\n";
/// The arguments of a call: as written if they are a JSON object, else "{}".
std::string_view object_or_empty(std::string_view arguments);

}  // namespace minfer
