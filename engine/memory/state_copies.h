#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "engine/options/engine_options.h"
#include "engine/request/sequence.h"

namespace minfer {

/// Which running sequence has which slot of the states that a model's layers keep (RecurrentStatePool). Admission takes a slot; it is given
/// back with the sequence's blocks. At most as many sequences run as there are slots, so a slot is never lacking. Steps under way may still
/// write to a slot given back. The sequence that takes it next comes in a later step and begins at position 0, where nothing of it is read.
///
/// Host only; one thread; owned by the scheduler. Without slots (a model without states) it does nothing.
class StateSlots {
 public:
  explicit StateSlots(int32_t num_slots);

  /// Throws std::logic_error if the sequence has one, or none is free.
  void take(Sequence& sequence);
  void give_back(Sequence& sequence);
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }

 private:
  int32_t num_slots_;
  std::vector<int32_t> free_;  ///< the next one last
};

/// Which slot of the states (RecurrentStatePool) holds a copy of the state behind which prefix. Where layers keep states, a prefix
/// hit needs such a copy beside KV blocks. The content id of a prefix's last block (BlockManager) names the prefix, and no other
/// prefix has it. The id of an evicted block never comes again, so its copy is no longer found and is replaced as other copies are.
///
/// Each slot is free, being written (by a step that is not committed, or for a sequence that brings drafts:
/// nobody finds or takes it) or kept. A copy takes a free slot, else the slot of the kept copy that was used
/// least recently. A reader of a copy is launched before any later writer to its slot. So no slot is ever in use.
///
/// Host only; one thread; owned by the scheduler.
class StateCopies {
 public:
  /// Slots [first_slot, first_slot + num_slots).
  StateCopies(int32_t first_slot, int32_t num_slots);
  StateCopies(const StateCopies&) = delete;
  StateCopies& operator=(const StateCopies&) = delete;

  int32_t num_slots() const { return num_slots_; }
  int32_t num_kept() const { return static_cast<int32_t>(kept_.size()); }
  int32_t num_writing() const { return static_cast<int32_t>(writing_.size()); }
  bool has_room() const { return num_writing() < num_slots(); }

  bool contains(uint64_t content) const { return by_content_.contains(content); }
  /// The slot of a kept copy, which is about to be read.
  int32_t use(uint64_t content);
  /// Takes a slot for what a step copies of the sequence. There must be room.
  int32_t begin(const Sequence& sequence);
  /// The step is committed: from now on the slot holds the prefix's copy. If the prefix has a copy already, that copy stays.
  void keep(int32_t slot, uint64_t content);
  /// Frees a slot that begin() took: nobody needs its copy.
  void drop(int32_t slot);
  /// Copies that steps under way make of the sequence will not be kept.
  void abandon(const Sequence& sequence);

  /// Throws std::logic_error if a slot is lost or counted twice. For tests, which define it (tests/support/engine/memory_checks.cpp).
  void check() const;

 private:
  struct Kept {
    uint64_t content;
    int32_t slot;
  };
  struct Writing {
    const Sequence* sequence;
    int32_t slot;
  };

  void end_writing(int32_t slot);

  const int32_t num_slots_;
  std::vector<int32_t> free_;  ///< the next one last
  std::vector<Writing> writing_;
  std::list<Kept> kept_;  ///< the least recently used first
  std::unordered_map<uint64_t, std::list<Kept>::iterator> by_content_;
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
