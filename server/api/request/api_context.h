#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/chat/answer/chat_answer_parser.h"
#include "models/chat/chat_template_source.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {

class GrammarCache;
class ResponseStore;

/// The limits of one request.
struct ApiLimits {
  int32_t max_n = 128;         ///< choices a prompt, as OpenAI's server has it
  int32_t max_prompts = 1024;  ///< prompts of a completion request
  int32_t max_choices = 1024;  ///< prompts x n
  int32_t max_logprobs = 20;   ///< alternatives a token; at most what SamplingParams allows
  int32_t max_stop_strings = 16;
  int32_t max_stop_bytes = 4096;  ///< of one stop string
  int32_t max_stop_tokens = 256;
  int32_t max_tools = 128;
  int64_t max_answer_bytes = 128 << 20;  ///< of JSON, as estimate_answer_bytes() has it
  size_t max_history_bytes = 16 << 20;   ///< of the conversation that a response goes on with
};

/// Facts of the model that clients may ask for.
struct ModelFacts {
  std::string architecture;  ///< as GGUF files name it
  std::string dtype;         ///< of most of its weights
  int64_t num_parameters = 0;
  int64_t bytes = 0;  ///< of its tensors
};

struct ApiContext;

/// A model as lists of models show it.
struct ListedModel {
  const ApiContext* model = nullptr;
  std::string_view status =
      {};  ///< "loaded", "loading", "unloaded" or "failed"; empty: the server has this model alone

  size_t num_waiting = 0;  ///< requests that wait for it to be loaded

  bool is_loaded() const { return status.empty() || status == "loaded"; }
};

/// The server's facts that the API needs. Filled once at the start, then read from any thread.
struct ApiContext {
  const Tokenizer* tokenizer = nullptr;  ///< outlives the context
  /// The prompt that a chat template makes of its variables, an object: messages, tools (if any),
  /// add_generation_prompt, and the client's chat_template_kwargs. Throws Error if the template
  /// refuses them, with a message that the client may see. Callable from several threads at once.
  std::function<RenderedChat(const nlohmann::ordered_json& variables)> render_chat;
  /// Makes a parser that finds reasoning and calls in answers of the model's format. Empty: they stay text. From any thread.
  std::function<std::unique_ptr<ChatAnswerParser>(const ChatAnswerOptions& options)> make_answer_parser;
  const ChatFormat* call_format = nullptr;       ///< of the calls that are found; null: none
  const ChatFormat* reasoning_format = nullptr;  ///< of the thoughts
  GrammarCache* grammars = nullptr;    ///< null: the device draws tokens without masks. Outlives the context
  bool finds_calls = false;            ///< the format has tool calls
  bool finds_reasoning = false;        ///< the format has reasoning
  bool short_call_ids = false;         ///< its template takes only call ids of nine letters or digits
  ResponseStore* responses = nullptr;  ///< of /v1/responses; null: none are kept. Outlives the context
  int32_t vocab_size = 0;              ///< ids that requests may name: 0 to vocab_size - 1
  size_t longest_token_bytes = 0;      ///< 0: not known
  int32_t max_model_len = 0;           ///< tokens of prompt and answer together
  std::vector<std::string> served_model_names;  ///< at least one; the first is listed first
  bool any_model_name = false;                  ///< a request may name any other model too
  std::vector<ListedModel> listed = {};         ///< all models of a server with several; empty: this one
  bool refuses_unknown_fields = false;          ///< false: they are ignored
  ModelFacts model;
  int64_t created = 0;                 ///< Unix time, s, that /v1/models gives
  std::string system_fingerprint;      ///< of every response; names version and model
  int32_t stream_interval = 1;         ///< the engine's; a request may only ask for a larger one
  bool schedules_by_priority = false;  ///< false: a priority has no effect and is refused
  ApiLimits limits;

  /// The models of the server.
  std::vector<ListedModel> models() const {
    return listed.empty() ? std::vector<ListedModel>{{this}} : listed;
  }
};

}  // namespace minfer
