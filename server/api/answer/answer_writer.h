#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/request/request.h"
#include "server/api/fields/api_error.h"
#include "server/api/request/api_context.h"
#include "server/api/request/completion_request.h"

namespace minfer {

/// Identifies a response.
struct ResponseIdentity {
  std::string id;       ///< whole, e.g. "cmpl-7f3a"
  int64_t created = 0;  ///< Unix time, s
};

/// An idle event of server-sent events.
inline constexpr const char* kIdleComment = ": waiting\n\n";

/// The events of one streamed response, each complete, in the form of the request's API. One thread at a time.
class AnswerStream {
 public:
  virtual ~AnswerStream() = default;

  /// Appends the events of a choice's next output to `events`. A refused or cancelled
  /// output gives the events of append_error(). Outputs after the end give nothing.
  virtual void append(int32_t choice, const RequestOutput& output, std::string& events) = 0;
  /// Ends the stream with an event that holds the error.
  virtual void append_error(const ApiError& error, std::string& events) = 0;
  /// An event that says nothing, for a stream that has been quiet.
  virtual std::string idle_event() const { return kIdleComment; }
  /// True if the last event has been written.
  virtual bool finished() const = 0;
  /// True if the choice's answer is over, perhaps before its last output: later outputs of the engine are of no use.
  virtual bool ended(int32_t choice) const = 0;
  /// The malformed part of the answer, for the log. Empty: none.
  virtual std::string problem() const { return {}; }
};

/// Collects the outputs of all choices into one response and writes it in pieces. With many
/// logprobs a response is tens of megabytes, which are never all in memory. One thread at a time.
class WholeAnswer {
 public:
  virtual ~WholeAnswer() = default;

  /// Takes the next output of a choice. Throws failure_of(output) if there is one.
  virtual void add(int32_t choice, RequestOutput output) = 0;
  /// True if all choices have ended, so that the body can be written.
  virtual bool finished() const = 0;
  virtual bool ended(int32_t choice) const = 0;  ///< as above
  /// The next piece of the body, about 64 KiB unless it is the last.
  virtual std::string next_piece() = 0;
  /// True if next_piece() has returned the last piece.
  virtual bool written() const = 0;
  virtual std::string problem() const { return {}; }  ///< as above
};

/// Makes an answer of the given class, for Dialect::stream and Dialect::whole.
template <class Base, class Answer>
std::unique_ptr<Base> make_answer(const CompletionRequest& request, const ResponseIdentity& identity,
                                  const ApiContext& context) {
  return std::make_unique<Answer>(request, identity, context);
}

}  // namespace minfer
