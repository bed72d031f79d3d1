#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/answer/answer_reader.h"
#include "server/api/answer/usage.h"

namespace minfer {

/// Identifies a response.
struct ResponseIdentity {
  std::string id;       ///< whole, e.g. "cmpl-7f3a"
  int64_t created = 0;  ///< Unix time, s
};

/// An idle event of server-sent events.
inline constexpr const char* kIdleComment = ": waiting\n\n";

/// Writes the answer to one request in the form of its API. Streamed: as events, each complete. Whole: as a body in pieces, since
/// with many logprobs it has tens of megabytes, which are never all in memory. One thread at a time.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  /// Takes the next output of a choice; outputs after its end give nothing. A stream appends their events to `events`.
  /// Throws failure_of(output) if there is one.
  virtual void take(int32_t choice, RequestOutput output, std::string& events) = 0;
  /// Ends a stream with an event that holds the error.
  virtual void append_error(const ApiError& error, std::string& events) = 0;
  /// An event that says nothing, for a stream that has been quiet.
  virtual std::string idle_event() const { return kIdleComment; }
  /// True if all choices have ended: a stream's last event has been written, or the body can be written.
  virtual bool finished() const = 0;
  /// True if the choice's answer is over, perhaps before its last output: later outputs of the engine are of no use.
  virtual bool ended(int32_t choice) const = 0;
  /// Appends the next piece of the body, about 64 KiB unless it is the last. Returns false if it is.
  virtual bool next_piece(std::string& text) = 0;
  /// The malformed part of the answer, for the log. Empty: none.
  virtual std::string problem() const = 0;
};

/// For Dialect::answer.
template <class Writer>
std::unique_ptr<AnswerWriter> make_answer(const CompletionRequest& request, const ResponseIdentity& identity,
                                          const ApiContext& context, bool streams) {
  return std::make_unique<Writer>(request, identity, context, streams);
}

/// Writes an answer of one choice, for APIs whose answers are made of parts that begin and end: thoughts, text, calls, one after the
/// other. An API implements the protected functions: a stream calls all of them but body(), a whole answer calls body() alone. One thread.
class SingleWriter : public AnswerWriter {
 public:
  /// The request and the context outlive it.
  SingleWriter(const CompletionRequest& request, ResponseIdentity identity, const ApiContext& context,
               bool streams)
      : request_(request),
        identity_(std::move(identity)),
        context_(context),
        choice_(request, context),
        usage_(request),
        streams_(streams) {}

  void take(int32_t choice, RequestOutput output, std::string& events) final;
  void append_error(const ApiError& error, std::string& events) final {
    if (!std::exchange(finished_, true)) fail(error, events);
  }
  bool finished() const final { return finished_; }
  bool ended(int32_t) const final { return finished_; }
  bool next_piece(std::string& text) final {
    text += body(*choice_.reader.end());
    return false;
  }
  std::string problem() const final { return choice_.reader.problem(); }

 protected:
  /// The events in front of everything else.
  virtual void begin(std::string&) {}
  /// Begins the last of parts().
  virtual void begin_part(std::string&) {}
  /// Adds more text to that part, which already holds it.
  virtual void add_text(std::string_view text, std::string& events) = 0;
  /// Ends that part: whole, or cut where the answer is cut.
  virtual void end_part(std::string&) {}
  /// The events after everything else.
  virtual void end(AnswerEnd end, std::string& events) = 0;
  virtual void fail(const ApiError& error, std::string& events) = 0;
  /// The whole body: there are no logprobs, so it is not much longer than its text.
  virtual std::string body(AnswerEnd end) = 0;

  /// The parts so far.
  const std::vector<AnswerPart>& parts() const { return choice_.parts.parts(); }
  /// All text of a kind, joined.
  std::string text(AnswerPart::Kind kind) const { return choice_.parts.text(kind); }
  Usage usage() const { return usage_.total(); }
  /// The index of the last part.
  int64_t index() const { return static_cast<int64_t>(parts().size()) - 1; }

  const CompletionRequest& request_;
  const ResponseIdentity identity_;
  const ApiContext& context_;
  std::string stop_string_;  ///< the one that ended it; else empty

 private:
  void take_delta(const ChatDelta& delta, std::string& events);
  void close_part(std::string& events);

  ParsedChoice choice_;
  UsageCount usage_;
  const bool streams_;
  bool started_ = false;
  bool part_open_ = false;
  bool finished_ = false;
};

/// Begins a server-sent event of that type; the type is its data's first member. The caller adds the other members and kEventEnd.
void begin_event(std::string_view type, std::string& events);
inline constexpr std::string_view kEventEnd = "}\n\n";
/// Adds a whole event; `write` writes the other members.
template <class Write>
void add_event(std::string_view type, std::string& events, const Write& write) {
  begin_event(type, events);
  JsonText json(events);
  write(json);
  events += kEventEnd;
}
/// The arguments of a call: as written if they are a JSON object, else "{}".
std::string_view object_or_empty(std::string_view arguments);

}  // namespace minfer
