#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "profiling/record/client_wait.h"

namespace minfer {

/// The steps that computed something for a request, as 0-based numbers; -1: none did.
struct RequestSteps {
  int64_t first = -1;
  int64_t last = -1;
  int32_t prefill = 0;  ///< steps with tokens of its prompt, or with tokens that are computed again
  int32_t decode = 0;
};

/// A request that has ended, for any reason. Times are now_ns() times; 0: the event never came.
struct EndedRequest {
  /// The prefixes of the prompt that are hashed: its first 16, 32, 64 ... 4,096 tokens.
  static constexpr size_t kShortestPrefix = 16, kMostPrefixes = 9;

  std::string id;
  uint32_t number = 0;  ///< in StepRecord::served, within one run of the engine; files have only ids
  std::string finish;   ///< name() of its FinishReason
  int64_t arrival_ns = 0;
  int64_t first_scheduled_ns = 0;
  int64_t first_token_ns = 0;
  int64_t end_ns = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;      ///< of the prompt, from the prefix cache
  int32_t recomputed_tokens = 0;  ///< computed again because it was preempted
  int32_t output_tokens = 0;
  int32_t preemptions = 0;
  int32_t priority = 0;  ///< lower is served first, when the engine schedules by priority
  /// True if a grammar limited the tokens that were drawn. If false, the next three are 0.
  bool has_grammar = false;
  /// The time to compile the grammar, for this request or for the first request that brought it.
  int64_t grammar_compile_ns = 0;
  int64_t mask_ns = 0;  ///< to follow the grammar and find the tokens that may come next, from the arrival on
  int32_t forced_tokens = 0;    ///< output tokens that the grammar left no choice of
  int64_t drafts = 0;           ///< steps to which it brought draft tokens
  int64_t draft_tokens = 0;     ///< the draft tokens in them
  int64_t accepted_tokens = 0;  ///< the draft tokens that were drawn
  RequestSteps steps;
  int32_t stream_interval = 1;  ///< tokens between two responses
  /// While the request ran: the time for which part of the answer waited for the client to take earlier data. -1: not known, e.g. without
  /// a client.
  int64_t client_wait_ns = -1;
  /// The same from the request's end until the client had taken the last byte or had gone. -1: not known.
  int64_t client_wait_after_ns = -1;
  /// The client, which may still be taking the answer. Null: there is none, or both waits are known.
  std::shared_ptr<const ClientWait> client = nullptr;
  int32_t num_prefixes = 0;  ///< also 0 if the request may share nothing
  /// Equal hashes mean prompts that begin alike and may share a cache. Comparable only within one run of the engine.
  std::array<uint32_t, kMostPrefixes> prefix_hashes{};

  /// Sets client_wait_after_ns to the wait so far.
  void set_client_wait_after(int64_t now_ns) {
    if (client && client_wait_ns >= 0)
      client_wait_after_ns = std::max<int64_t>(0, client->until(now_ns) - client_wait_ns);
  }

  std::span<const uint32_t> prefixes() const {
    return std::span(prefix_hashes).first(static_cast<size_t>(num_prefixes));
  }
  /// From the arrival to the first step that computed something for the request, or to the end if no step did.
  int64_t queue_ns() const { return (first_scheduled_ns > 0 ? first_scheduled_ns : end_ns) - arrival_ns; }
  /// From that step to the first token.
  int64_t prefill_ns() const {
    if (first_scheduled_ns == 0) return 0;
    return (first_token_ns > 0 ? first_token_ns : end_ns) - first_scheduled_ns;
  }
  /// From the first token to the end.
  int64_t decode_ns() const { return first_token_ns > 0 ? end_ns - first_token_ns : 0; }
};

}  // namespace minfer
