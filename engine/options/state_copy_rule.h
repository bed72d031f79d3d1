#pragma once

#include <cstdint>

namespace minfer {

/// Where copies of a sequence's state are made for the prefix cache: at ends of KV blocks where other
/// prompts are likely to go on. A copy is made at the last end of a block in front of each of these places:
/// - the end of the prompt, less what templates put behind the last message and take back in the
///   next turn (an opened answer or thought): the next turn of a conversation begins anew there;
/// - the end of what the prompt has in common with earlier prompts that are known only by their KV blocks: instructions and
///   documents that requests share, from the third request on (branch points: Marconi, Pan et al. 2024, arXiv:2411.19379);
/// - every `interval` tokens, in answers too: for the second request that shares a long prompt, and for a preempted sequence to resume.
/// If two places are nearer than `least_tokens` to each other, only the first gets a copy. A place so near
/// to the found prefix gets none: a copy would cost a step and a slot for what is soon computed again.
struct StateCopyRule {
  int32_t interval = 4096;
  int32_t reopened_tokens = 8;  ///< last tokens of a prompt that the next turn may replace
  int32_t least_tokens = 64;
};

/// The facts of a sequence that the rule needs, in tokens.
struct StateCopyFacts {
  int32_t block_size = 16;
  int32_t num_scheduled = 0;
  int32_t last_copy = 0;    ///< where the newest copy is that it made or began with; 0: none
  int32_t num_prefill = 0;  ///< tokens that it computes before it decodes
  int32_t num_shared = 0;   ///< of these, tokens in common with prompts before it
};

/// The next place behind num_scheduled where a copy is to be made.
int64_t next_state_copy(const StateCopyRule& rule, const StateCopyFacts& facts);

}  // namespace minfer
