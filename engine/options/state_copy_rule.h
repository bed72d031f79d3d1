#pragma once

#include <cstdint>

namespace minfer {

/// Where copies of a sequence's state are made for the prefix cache: at ends of KV blocks where other prompts are likely to go on. These are,
/// each at the last such end in front of it,
/// - the end of the prompt, less what templates put behind the last message and take back in the next turn (an opened answer or thought):
///   there the next turn of a conversation begins anew;
/// - the end of what the prompt has in common with prompts before it, where these are known by their KV blocks alone: instructions and
///   documents that requests share, from the third one on (branch points: Marconi, Pan et al. 2024, arXiv:2411.19379);
/// - every `interval` tokens, of answers too: what a long prompt shares with the second request, and where a preempted sequence resumes.
/// Of two that are nearer than `least_tokens` to each other the first alone is made, and none so near to the prefix that was found: it
/// would cost a step and a slot for what is soon computed again.
struct StateCopyRule {
  int32_t interval = 4096;
  int32_t reopened_tokens = 8;  ///< of the end of a prompt, that the next turn may have otherwise
  int32_t least_tokens = 64;
};

/// What the rule has to know of a sequence, in tokens.
struct StateCopyFacts {
  int32_t block_size = 16;
  int32_t num_scheduled = 0;
  int32_t last_copy = 0;    ///< where the newest copy is that it has made or begun with; 0: none
  int32_t num_prefill = 0;  ///< what it computes before it decodes
  int32_t num_shared = 0;   ///< of these, what prompts before it have in common with it
};

/// The next place behind num_scheduled where a copy is to be made.
int64_t next_state_copy(const StateCopyRule& rule, const StateCopyFacts& facts);

}  // namespace minfer
