#pragma once

#include <cstdint>
#include <span>

#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// What one sequence's drafts are made of, and how good they are: part of LiveRequest, engine thread. It knows committed tokens alone,
/// so a preemption changes nothing.
class Drafter {
 public:
  Drafter() = default;
  Drafter(const Drafter&) = delete;
  Drafter& operator=(const Drafter&) = delete;
  virtual ~Drafter() = default;

  /// All tokens of the sequence, those of the call before and new ones. O(new tokens).
  virtual void follow(std::span<const TokenId> tokens) = 0;
  /// The chance that draft `index`, from 0, would be right if those before it were; 0: there would be none.
  virtual float hit_rate(int32_t index) const = 0;
  /// What became of drafts: the first `num_accepted` were right.
  virtual void checked(int32_t num_drafts, int32_t num_accepted) = 0;
};

}  // namespace minfer
