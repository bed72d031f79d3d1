#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/answer/answer_reader.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/answer/usage.h"

namespace minfer {

/// An answer of one choice as far as it has come, for APIs whose answers are made of parts that begin and end: thoughts, text, calls,
/// one after the other. The request and the context outlive it. One thread.
struct SingleChoice : ParsedChoice {
  SingleChoice(const CompletionRequest& of, ResponseIdentity id, const ApiContext& in)
      : ParsedChoice(of, in), request(of), identity(std::move(id)), context(in), usage(of) {}

  /// Takes the next output and returns what the client sees of it, for the caller to add to `parts`.
  std::vector<ChatDelta> read(const RequestOutput& output);

  const CompletionRequest& request;
  const ResponseIdentity identity;
  const ApiContext& context;
  UsageCount usage;
  std::string stop_string = {};  ///< the one that ended it; else empty
};

/// Writes such an answer in the form of an API. A stream calls all functions but body(), a whole answer calls body() alone.
class SingleWriter {
 public:
  explicit SingleWriter(const SingleChoice& choice) : choice_(choice) {}
  virtual ~SingleWriter() = default;

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
  virtual std::string idle_event() const { return kIdleComment; }
  /// The whole body: there are no logprobs, so it is not much longer than its text.
  virtual std::string body(AnswerEnd end) = 0;

 protected:
  const CompletionRequest& request() const { return choice_.request; }
  const ResponseIdentity& identity() const { return choice_.identity; }
  const std::string& stop_string() const { return choice_.stop_string; }
  const std::vector<AnswerPart>& parts() const { return choice_.parts.parts(); }
  std::string text(AnswerPart::Kind kind) const { return choice_.parts.text(kind); }
  Usage usage() const { return choice_.usage.total(); }
  /// The index of the last part.
  int64_t index() const { return static_cast<int64_t>(parts().size()) - 1; }

  const SingleChoice& choice_;
};

/// For Dialect::writer.
template <class Writer>
std::unique_ptr<SingleWriter> make_writer(const SingleChoice& choice) {
  return std::make_unique<Writer>(choice);
}

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
