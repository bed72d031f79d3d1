#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/request/request.h"
#include "models/chat/answer/chat_answer_parser.h"
#include "server/api/fields/api_error.h"
#include "server/api/request/api_context.h"
#include "server/api/request/dialect.h"

namespace minfer {

/// The tools of a request that the model may call.
struct ToolChoice {
  enum class Kind : uint8_t {
    none,       ///< none: the model does not see them
    automatic,  ///< as the model likes
    required,   ///< at least one
    named,      ///< the one of `names`, once
  };
  Kind kind = Kind::automatic;
  std::vector<std::string> names = {};  ///< the tools that may be called; empty: all
};

/// The parts to parse out of the answers' text.
struct AnswerParsing {
  bool enabled = false;  ///< false: all is content
  ChatAnswerOptions options;
  bool one_call = false;        ///< the answer ends behind its first call
  bool shows_reasoning = true;  ///< false: reasoning is dropped
  bool hides_special = false;   ///< control tokens are in the text for the parser alone

  bool finds_reasoning() const { return enabled && options.finds_reasoning; }
};

using ToolNames = std::set<std::string, std::less<>>;

struct ResponsesRequest;
struct StructuredOutput;

/// A request for completions in the form of any of the APIs, checked and tokenised: everything that the
/// engine and the response need. Choices are numbered prompt by prompt: choice c answers prompts[c / n].
struct CompletionRequest {
  const Dialect* dialect = nullptr;           ///< dialect of the request and its answer
  std::string model;                          ///< as the client named it
  std::vector<std::vector<TokenId>> prompts;  ///< at least one, none empty, each within the context
  std::vector<std::string> prompt_texts;      ///< texts that `echo` puts before the answers; else empty
  int32_t n = 1;
  SamplingParams sampling;  ///< of all choices; see engine_request() for the seed
  int32_t priority = 0;
  std::string cache_salt;  ///< see Request
  bool stream = false;
  bool include_usage = false;     ///< a last event with the usage
  bool continuous_usage = false;  ///< the usage so far in every event
  bool timings = false;           ///< llama-server's object of that name, in every event too
  bool echo = false;              ///< the prompt goes before the answer, with its logprobs if any are wanted
  bool service_tier = false;      ///< the client named one, so the response does
  std::vector<std::string> ignored_fields;  ///< see UnknownFields::names()
  ToolChoice tool_choice;
  AnswerParsing parsing;
  ToolNames custom_tools;  ///< tools whose calls bring a text; names as shown to the model
  std::shared_ptr<const StructuredOutput> form;       ///< form of the answers; null: they are free
  std::shared_ptr<TokenGrammar> grammar;              ///< of the form, once it is compiled: not when parsed
  std::shared_ptr<const ResponsesRequest> responses;  ///< further data of /v1/responses; else null
  size_t held_bytes = 0;  ///< bytes kept beside its prompts; they count as bodies do

  int32_t num_choices() const { return static_cast<int32_t>(prompts.size()) * n; }
  const std::vector<TokenId>& prompt_of(int32_t choice) const {
    return prompts[static_cast<size_t>(choice / n)];
  }
  const std::string& prompt_text_of(int32_t choice) const {
    return prompt_texts[static_cast<size_t>(choice / n)];
  }
  /// The engine's request for one choice. With a seed, the i-th choice of a prompt has seed + i.
  Request engine_request(int32_t choice, std::string id) const;
};

}  // namespace minfer
