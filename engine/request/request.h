#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/options/speculation_options.h"
#include "kernels/sampling.h"
#include "models/grammar/token_grammar.h"
#include "models/tokenizer/tokenizer.h"
#include "profiling/record/client_wait.h"

namespace minfer {

/// How a request's tokens are drawn and when it ends. Defaults are vLLM's.
struct SamplingParams {
  float temperature = 1.0f;  ///< 0: greedy
  int32_t top_k = 0;         ///< 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<LogitBias> logit_bias;
  std::optional<uint64_t> seed;  ///< absent: the engine draws one
  int32_t max_tokens = 16;       ///< 0: nothing is drawn, as for the logprobs of the prompt alone
  /// For the first min_tokens tokens, end and stop tokens are forbidden, and a stop string that ends within them
  /// ends nothing: it stays in the text. A stop string that begins within them and ends behind them counts.
  int32_t min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool include_stop_in_output = false;  ///< the text of the stop string or stop token
  /// End tokens are tokens like others; with a grammar see Request::grammar.
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  int32_t logprobs = -1;  ///< n >= 0: for every token, the drawn token's logprob and the n highest
  /// n >= 0: also the logprobs of every prompt token but the first, and of the n most likely
  /// ones. The whole prompt is then computed; none of it is taken from the prefix cache.
  int32_t prompt_logprobs = -1;
  int32_t stream_interval = 0;  ///< 0: the engine's; a larger one than the engine's holds for this request

  /// Throws Error naming the field, its range and the value found.
  void validate(int32_t vocab_size) const;
};

/// Bytes of Request::cache_salt at most: a random number of 256 bits has 43 in base64.
inline constexpr size_t kMaxCacheSaltBytes = 256;

struct Request {
  std::string id;  ///< unique among live requests
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  int32_t priority = 0;  ///< lower is served first, when the engine schedules by priority
  /// Only requests of the same salt share cached prefixes, so that a hit tells nobody who
  /// does not know the salt what they hold. Empty: shared with all requests that have none.
  std::string cache_salt = {};
  std::shared_ptr<const ClientWait> client_wait = {};  ///< for the request's record; null: not known
  /// The grammar that the text must match: each token is drawn among the tokens that it allows. Null: free
  /// text. It must be of the model's vocabulary; the backend must take masks. Beside the fields of `sampling`:
  /// - If the text is whole and nothing can follow, the request ends at once, whatever min_tokens and ignore_eos say.
  /// - If it is whole and something can follow, an end token may be drawn and ends the request. With
  ///   ignore_eos, or before min_tokens, only if the vocabulary has nothing else that may follow.
  /// - stop, stop_token_ids and max_tokens end an unfinished text as they end any other. Stop tokens that are not end tokens
  ///   are forbidden before min_tokens, even if the grammar allows nothing else: the request then ends with an error.
  /// - logit_bias and penalties choose among the allowed tokens, and allow no others.
  /// - Tokens that follow whatever is drawn are taken without drawing, several in a step: bias and min_tokens do not change
  ///   them. They are output like others; with logprobs one step later, since the logprobs come from that step's logits.
  /// A text that no token can continue, or whose grammar is too ambiguous to say which tokens can, ends with an error.
  std::shared_ptr<TokenGrammar> grammar = {};
};

/// `error`: the model or the grammar gave no token to draw. Tokens that came before it stand.
enum class FinishReason : uint8_t { stop, length, cancelled, refused, error };
std::string_view name(FinishReason reason);
/// True if a request with this finish reason has no answer; finish_detail says why.
inline bool is_failure(FinishReason reason) {
  return reason == FinishReason::refused || reason == FinishReason::error;
}

/// The progress of a request since the last output for it. Text and tokens are deltas.
struct RequestOutput {
  std::string id;
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<SampledToken> logprobs;  ///< one a token, if asked for
  /// In the output with the first token (or with the finish, if there is none), if asked for: logprobs of prompt[1], prompt[2] ...
  std::vector<SampledToken> prompt_logprobs;
  std::optional<FinishReason> finish;
  std::string finish_detail;  ///< the stop string that was hit, or why a request was refused or failed
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  ///< prompt tokens taken from the prefix cache
  int32_t output_tokens = 0;  ///< so far
  SpeculationCounts drafted;  ///< so far
  int64_t arrival_ns = 0;
  int64_t first_scheduled_ns = 0;
  int64_t first_token_ns = 0;
  int64_t last_token_ns = 0;
};

}  // namespace minfer
