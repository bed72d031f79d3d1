#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request/request.h"
#include "models/chat/answer/custom_input.h"
#include "profiling/json/json_text.h"
#include "server/api/answer/answer_reader.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/answer/usage.h"
#include "server/api/fields/api_error.h"
#include "server/api/request/api_context.h"
#include "server/api/request/completion_request.h"
#include "server/dialects/openai/openai_logprobs.h"
#include "server/dialects/openai/openai_response.h"

namespace minfer {

// Parts that streamed and whole responses share.

/// The members before the choices: id, object, created, model, system_fingerprint and, if the client named one, service_tier.
void write_head(JsonText& json, const CompletionRequest& request, const ResponseIdentity& identity,
                std::string_view system_fingerprint, std::string_view object);

/// {"prompt_tokens","completion_tokens","total_tokens","prompt_tokens_details":{"cached_tokens"}} and, where reasoning is looked for,
/// "completion_tokens_details":{"reasoning_tokens"}.
void write_usage(JsonText& json, const Usage& usage);

/// The members `,"finish_reason":...,"stop_reason":...` of the choice that `output`
/// ends. stop_reason is vLLM's: the stop string or the stop token's id that ended it,
/// null for the model's own end and for length. `end`: the end of a parsed choice.
std::string finish_json(const CompletionRequest& request, const Tokenizer& tokenizer,
                        const RequestOutput& output, const std::optional<AnswerEnd>& end = {});

/// Null: the request's answers are not parsed.
std::unique_ptr<ParsedChoice> make_parsed_choice(const CompletionRequest& request, const ApiContext& context);

/// The members of the delta in a chat's stream for `delta`, which `parts` has
/// taken. Empty: no members. `input` reads the inputs of calls of custom tools.
std::string delta_json(const CompletionRequest& request, const ChatDelta& delta, const AnswerParts& parts,
                       CustomInput& input);
/// The same for the text that `input` still holds when the answer ends within such a call.
std::string rest_json(const CompletionRequest& request, const AnswerParts& parts, CustomInput& input);

/// {"role","content","refusal","reasoning_content","tool_calls"}, the last two only if there are some.
void write_message(JsonText& json, const CompletionRequest& request, const AnswerParts& parts);

/// The first offsets of a completion's choice. An echoed prompt's text ends where its tokens'
/// text ends, but may begin behind the tokens' begin (the space in front of the first word, BOS).
TextOffsets first_offsets(const CompletionRequest& request, const Tokenizer& tokenizer, int32_t choice);

/// The tokens of an output that a response shows, with their logprobs. If the prompt
/// is echoed, the prompt's tokens come first; the very first has a logprob of NaN.
std::vector<SampledToken> shown_tokens(const CompletionRequest& request, int32_t choice,
                                       RequestOutput output);

/// The events of a stream of /v1/completions or /v1/chat/completions ("data: {...}\n\n").
///
/// Each output gives one event. In a chat, an event with the role precedes a choice's first event.
/// After the last output of the last choice come the usage, if asked for, and "data: [DONE]".
class StreamWriter final : public AnswerStream {
 public:
  StreamWriter(const CompletionRequest& request, const ResponseIdentity& identity, const ApiContext& context);

  void append(int32_t choice, const RequestOutput& output, std::string& events) override;
  /// Appends the error object and "data: [DONE]".
  void append_error(const ApiError& error, std::string& events) override;
  bool finished() const override { return finished_; }
  bool ended(int32_t choice) const override { return choices_[static_cast<size_t>(choice)].finished; }
  std::string problem() const override { return problem_; }
  Usage usage() const { return usage_.total(); }

 private:
  struct Choice {
    TextOffsets offsets;
    std::unique_ptr<ParsedChoice> parsed = nullptr;  ///< null: all is content
    CustomInput input = {};  ///< the open call's input, if it is a call of a custom tool
    bool started = false;
    bool finished = false;
  };

  void append_role(int32_t choice, std::string& events) const;
  void append_delta(int32_t choice, const RequestOutput& output, std::string& events);
  void append_parsed(int32_t choice, const RequestOutput& output, std::string& events);
  void append_parsed_event(int32_t choice, const std::string& delta, const std::string& logprobs,
                           const std::string& finish, std::string& events) const;
  void append_after_choice(int32_t choice, std::string& events) const;
  void append_end(std::string& events);

  const CompletionRequest& request_;
  const Tokenizer& tokenizer_;
  UsageCount usage_;
  std::vector<Choice> choices_;
  int32_t num_unfinished_;
  bool finished_ = false;
  std::string head_;          ///< the beginning of every event, up to the choices
  std::string before_index_;  ///< the same and on, up to the index of its choice
  std::string problem_;
};

/// A whole response of /v1/completions or /v1/chat/completions. Frees each part once it is written.
class ResponseBuilder final : public WholeAnswer {
 public:
  ResponseBuilder(const CompletionRequest& request, ResponseIdentity identity, const ApiContext& context);

  void add(int32_t choice, RequestOutput output) override;
  bool finished() const override { return num_unfinished_ == 0; }
  bool ended(int32_t choice) const override { return !choices_[static_cast<size_t>(choice)].finish.empty(); }
  std::string problem() const override { return problem_; }
  Usage usage() const { return usage_.total(); }
  std::string next_piece() override;
  bool written() const override { return next_part_ == Part::none; }

 private:
  struct Choice {
    std::string text;                                ///< the answer's text if it is not parsed
    std::unique_ptr<ParsedChoice> parsed = nullptr;  ///< null: all is content
    std::vector<SampledToken> logprobs;
    std::string finish;  ///< members that say why it ended
  };
  /// The part to write next.
  enum class Part : uint8_t { head, choice, logprobs, tail, none };

  void add_parsed(int32_t index, Choice& choice, const RequestOutput& output);
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
  std::string problem_;

  std::string text_;  ///< written text that is not given out yet
  Part next_part_ = Part::head;
  int32_t next_choice_ = 0;
  std::optional<TextOffsets> offsets_;  ///< this and the next: of the choice being written
  std::optional<LogprobsWriter> logprobs_;
};

}  // namespace minfer
