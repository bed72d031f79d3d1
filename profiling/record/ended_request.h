#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "profiling/record/client_wait.h"

namespace minfer {

/// The steps that computed something for a request. 0-based numbers; -1: none did.
struct RequestSteps {
  int64_t first = -1;
  int64_t last = -1;
  int32_t prefill = 0;  ///< in which it brought tokens of its prompt, or of what is computed again
  int32_t decode = 0;
};

/// A request that has ended, whatever the reason. Times are now_ns() times; 0: that never came.
struct EndedRequest {
  /// Prefixes of the prompt that have a hash: its first 16, 32, 64 ... 4,096 tokens.
  static constexpr size_t kShortestPrefix = 16, kMostPrefixes = 9;

  std::string id;
  uint32_t number = 0;  ///< in StepRecord::served, of one run of the engine; files have ids alone
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
  /// Its tokens were drawn among those that a grammar allows. If not, the next three are 0.
  bool has_grammar = false;
  /// What compiling the grammar took, if not for this request then for the first that brought it.
  int64_t grammar_compile_ns = 0;
  int64_t mask_ns = 0;          ///< following it and finding which tokens may come next, from the arrival on
  int32_t forced_tokens = 0;    ///< of the output, which the grammar left no choice of
  int64_t drafts = 0;           ///< times that it brought draft tokens to a step
  int64_t draft_tokens = 0;     ///< these tokens
  int64_t accepted_tokens = 0;  ///< of these, the ones that were drawn
  RequestSteps steps;
  int32_t stream_interval = 1;  ///< tokens between two of its responses
  /// Time, while it ran, in which some of its answer waited for the client to take what was sent before. -1: not known, e.g. it had no
  /// client.
  int64_t client_wait_ns = -1;
  /// The same from its end on, until the client had taken the last byte or had gone. -1: not known.
  int64_t client_wait_after_ns = -1;
  /// Its client, who may still be taking the answer. Null: none, or all is known.
  std::shared_ptr<const ClientWait> client = nullptr;
  int32_t num_prefixes = 0;  ///< 0 too where it may share nothing
  /// Equal ones are of prompts that begin alike and may share a cache. Comparable within a run of the engine only.
  std::array<uint32_t, kMostPrefixes> prefix_hashes{};

  /// Sets client_wait_after_ns to what is known of it.
  void set_client_wait_after(int64_t now_ns) {
    if (client && client_wait_ns >= 0)
      client_wait_after_ns = std::max<int64_t>(0, client->until(now_ns) - client_wait_ns);
  }

  std::span<const uint32_t> prefixes() const {
    return std::span(prefix_hashes).first(static_cast<size_t>(num_prefixes));
  }
  /// From its arrival until a step computed something for it; until its end if none did.
  int64_t queue_ns() const { return (first_scheduled_ns > 0 ? first_scheduled_ns : end_ns) - arrival_ns; }
  /// From then on to its first token.
  int64_t prefill_ns() const {
    if (first_scheduled_ns == 0) return 0;
    return (first_token_ns > 0 ? first_token_ns : end_ns) - first_scheduled_ns;
  }
  /// From its first token to its end.
  int64_t decode_ns() const { return first_token_ns > 0 ? end_ns - first_token_ns : 0; }
};

}  // namespace minfer
