#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/request/sequence.h"

namespace minfer {

/// Which running sequence has which slot of the states that a model's layers keep (RecurrentStatePool). A slot is taken on admission and given
/// back with the sequence's blocks; there are as many as slots, so none is ever lacking. Steps under way may still write to one that was
/// given back. The sequence that takes it next comes in a later step and begins at position 0, where nothing of it is read.
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

/// Which slot of the states (RecurrentStatePool) holds a copy of the state behind which prefix: what a prefix hit needs beside KV blocks, where layers
/// keep states. A prefix is known by the content id of its last block (BlockManager), which means one prefix alone; of a block that was
/// evicted it never comes again, so that its copy is found no more and goes as the others do.
///
/// Each slot is free, being written (by a step that is not committed, or for a sequence that brings drafts: found by nobody, taken from
/// nobody) or kept. A copy takes a free slot, else that of the kept one whose last use is longest ago. Whoever reads a copy is launched
/// before whoever writes to its slot afterwards, so that nothing is ever in use.
///
/// Host only; one thread; owned by the scheduler.
class StateCopies {
 public:
  /// Slots [first_slot, first_slot + num_slots).
  StateCopies(int32_t first_slot, int32_t num_slots);

  int32_t num_slots() const { return static_cast<int32_t>(entries_.size()); }
  int32_t num_kept() const { return static_cast<int32_t>(slot_of_.size()); }
  int32_t num_writing() const { return static_cast<int32_t>(writing_.size()); }
  bool has_room() const { return num_writing() < num_slots(); }

  bool contains(uint64_t content) const { return slot_of_.contains(content); }
  /// The slot of a copy that is kept, which is about to be read.
  int32_t use(uint64_t content);
  /// A slot for what a step copies of the sequence. There must be room.
  int32_t begin(const Sequence& sequence);
  /// The step is committed: the copy is that of the prefix from now on. If there is one already, that one stays.
  void keep(int32_t slot, uint64_t content);
  /// Nobody needs what the slot was taken for by begin(): it is free.
  void drop(int32_t slot);
  /// What steps under way copy of the sequence will not be kept.
  void abandon(const Sequence& sequence);

  /// Throws std::logic_error if a slot is lost or counted twice. For tests, which have it (tests/support/engine/memory_checks.cpp).
  void check() const;

 private:
  static constexpr int32_t kNone = -1;

  struct Entry {
    uint64_t content = 0;  ///< 0: none is kept
    int32_t older = kNone, newer = kNone;
  };
  struct Writing {
    const Sequence* sequence;
    int32_t slot;
  };

  Entry& entry(int32_t slot) { return entries_[static_cast<size_t>(slot - first_slot_)]; }
  const Entry& entry(int32_t slot) const { return entries_[static_cast<size_t>(slot - first_slot_)]; }
  void end_writing(int32_t slot);
  void link_newest(int32_t slot);
  void unlink(int32_t slot);

  const int32_t first_slot_;
  std::vector<Entry> entries_;
  std::vector<int32_t> free_;  ///< the next one last
  std::vector<Writing> writing_;
  std::unordered_map<uint64_t, int32_t> slot_of_;  ///< by content
  int32_t oldest_ = kNone, newest_ = kNone;        ///< of those kept, by last use
};

}  // namespace minfer
