#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/request/request.h"
#include "server/api/fields/api_error.h"

namespace minfer {

struct ApiContext;
struct CompletionRequest;

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
  /// The next piece of the body, about 64 KiB unless it is the last.
  virtual std::string next_piece() = 0;
  /// True if next_piece() has returned the last piece.
  virtual bool written() const = 0;
  /// The malformed part of the answer, for the log. Empty: none.
  virtual std::string problem() const = 0;
};

/// For Dialect::answer.
template <class Writer>
std::unique_ptr<AnswerWriter> make_answer(const CompletionRequest& request, const ResponseIdentity& identity,
                                          const ApiContext& context, bool streams) {
  return std::make_unique<Writer>(request, identity, context, streams);
}

}  // namespace minfer
