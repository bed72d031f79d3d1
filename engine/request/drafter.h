#pragma once

#include <cstdint>
#include <span>

#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The material of one sequence's drafts, and how good the drafts are. Part of LiveRequest,
/// engine thread. It knows only committed tokens, so a preemption changes nothing.
class Drafter {
 public:
  Drafter() = default;
  Drafter(const Drafter&) = delete;
  Drafter& operator=(const Drafter&) = delete;
  virtual ~Drafter() = default;

  /// Takes all tokens of the sequence: the tokens of the call before, then new ones. O(new tokens).
  virtual void follow(std::span<const TokenId> tokens) = 0;
  /// The chance that draft `index`, counted from 0, is right if the drafts before it are; 0: there is no such draft.
  virtual float hit_rate(int32_t index) const = 0;
  /// Takes the result of a check of drafts: the first `num_accepted` were right.
  virtual void checked(int32_t num_drafts, int32_t num_accepted) = 0;
};

}  // namespace minfer
