#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/openai/api_context.h"
#include "server/openai/api_error.h"
#include "server/openai/openai_logprobs.h"
#include "server/openai/openai_request.h"

namespace minfer {

/// What tells one response from all others.
struct ResponseIdentity {
  std::string id;       ///< whole, e.g. "cmpl-7f3a"
  int64_t created = 0;  ///< Unix time, s
};

/// Tokens a request cost so far. The prompt of several choices counts once.
struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  ///< prompt tokens from the prefix cache; part of prompt_tokens
};

/// Adds up the usage of a request's choices from their outputs.
class UsageCount {
 public:
  explicit UsageCount(const CompletionRequest& request);
  void add(int32_t choice, const RequestOutput& output);
  Usage total() const { return total_; }
  /// Of one choice by itself, as an event that tells the usage so far has it.
  const Usage& of(int32_t choice) const { return choices_[static_cast<size_t>(choice)]; }

 private:
  const CompletionRequest& request_;
  std::vector<Usage> choices_;
  Usage total_;
};

/// Why the answer that `output` ends did not come about: refused by the engine (400), failed in it (500) or cancelled by
/// the server (503). Absent for every other output.
std::optional<ApiError> failure_of(const RequestOutput& output);

/// The events of one streamed response, as complete server-sent events ("data: {...}\n\n"). One thread at a
/// time. `request` and the context's tokeniser outlive it.
///
/// Each output gives one event; the first of a chat's choice is preceded by one with its role. The last
/// output of the last choice is followed by the usage, if asked for, and by "data: [DONE]".
class StreamWriter {
 public:
  StreamWriter(const CompletionRequest& request, const ResponseIdentity& identity, const ApiContext& context);

  /// Appends the events of the next output of a choice to `events`. A refused or cancelled one gives what
  /// append_error() gives. Outputs behind the end give nothing.
  void append(int32_t choice, const RequestOutput& output, std::string& events);
  /// Ends the stream with an event that holds the error object, and "data: [DONE]".
  void append_error(const ApiError& error, std::string& events);
  /// Whether the last event has been written.
  bool finished() const { return finished_; }
  Usage usage() const { return usage_.total(); }

 private:
  struct Choice {
    TextOffsets offsets;
    bool started = false;
    bool finished = false;
  };

  void append_role(int32_t choice, std::string& events) const;
  void append_delta(int32_t choice, const RequestOutput& output, std::string& events);
  void append_after_choice(int32_t choice, std::string& events) const;
  void append_end(std::string& events);

  const CompletionRequest& request_;
  const Tokenizer& tokenizer_;
  UsageCount usage_;
  std::vector<Choice> choices_;
  int32_t num_unfinished_;
  bool finished_ = false;
  std::string head_;          ///< what every event begins with, up to the choices
  std::string before_index_;  ///< and up to the index of its choice
  std::string after_choice_;  ///< what it ends with, unless it tells the usage so far
};

/// Collects the outputs of all choices into one response, and writes it in pieces: tens of megabytes, where
/// many logprobs are wanted, which never stand in memory together. What is written is let go of. One thread at
/// a time. `request` and the context's tokeniser outlive it.
class ResponseBuilder {
 public:
  ResponseBuilder(const CompletionRequest& request, ResponseIdentity identity, const ApiContext& context);

  /// Takes the next output of a choice. Throws failure_of(output) if there is one.
  void add(int32_t choice, RequestOutput output);
  /// Whether all choices have ended: the body can be written.
  bool finished() const { return num_unfinished_ == 0; }
  Usage usage() const { return usage_.total(); }
  /// The next piece of the body, about 64 KiB unless it is the last.
  std::string next_piece();
  /// Whether next_piece() has given the last one.
  bool written() const { return next_part_ == Part::none; }

 private:
  struct Choice {
    std::string text;
    std::vector<SampledToken> logprobs;
    std::string finish;  ///< members that say why it ended
  };
  /// What is written next.
  enum class Part : uint8_t { head, choice, logprobs, tail, none };

  void write_next();
  void write_choice(JsonText& json);
  void end_choice(JsonText& json);

  const CompletionRequest& request_;
  ResponseIdentity identity_;
  const Tokenizer& tokenizer_;
  std::string system_fingerprint_;
  UsageCount usage_;
  std::vector<Choice> choices_;
  int32_t num_unfinished_;

  std::string text_;  ///< written, not given out
  Part next_part_ = Part::head;
  int32_t next_choice_ = 0;
  std::optional<TextOffsets> offsets_;  ///< of the choice that is being written, as is the next
  std::optional<LogprobsWriter> logprobs_;
};

}  // namespace minfer
