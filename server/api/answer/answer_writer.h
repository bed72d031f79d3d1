#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/request/request.h"
#include "server/api/fields/api_error.h"
#include "server/api/request/api_context.h"
#include "server/api/request/completion_request.h"

namespace minfer {

/// What tells one response from all others.
struct ResponseIdentity {
  std::string id;       ///< whole, e.g. "cmpl-7f3a"
  int64_t created = 0;  ///< Unix time, s
};

/// The events of one streamed response, as complete server-sent events, in the form of the request's API. One thread at a time.
class AnswerStream {
 public:
  virtual ~AnswerStream() = default;

  /// Appends the events of the next output of a choice to `events`. A refused or cancelled one gives what
  /// append_error() gives. Outputs behind the end give nothing.
  virtual void append(int32_t choice, const RequestOutput& output, std::string& events) = 0;
  /// Ends the stream with an event that holds the error.
  virtual void append_error(const ApiError& error, std::string& events) = 0;
  /// Whether the last event has been written.
  virtual bool finished() const = 0;
  /// Whether the choice's answer is over, which may be before its last output: what the engine still gives is of no use.
  virtual bool ended(int32_t choice) const = 0;
  /// What of the answer was malformed, for the log. Empty: nothing.
  virtual std::string problem() const { return {}; }
};

/// Collects the outputs of all choices into one response, and writes it in pieces: tens of megabytes, where
/// many logprobs are wanted, which never stand in memory together. One thread at a time.
class WholeAnswer {
 public:
  virtual ~WholeAnswer() = default;

  /// Takes the next output of a choice. Throws failure_of(output) if there is one.
  virtual void add(int32_t choice, RequestOutput output) = 0;
  /// Whether all choices have ended: the body can be written.
  virtual bool finished() const = 0;
  virtual bool ended(int32_t choice) const = 0;  ///< as above
  /// The next piece of the body, about 64 KiB unless it is the last.
  virtual std::string next_piece() = 0;
  /// Whether next_piece() has given the last one.
  virtual bool written() const = 0;
  virtual std::string problem() const { return {}; }  ///< as above
};

/// Dialect::stream and Dialect::whole of the class of an answer.
template <class Base, class Answer>
std::unique_ptr<Base> make_answer(const CompletionRequest& request, const ResponseIdentity& identity,
                                  const ApiContext& context) {
  return std::make_unique<Answer>(request, identity, context);
}

}  // namespace minfer
