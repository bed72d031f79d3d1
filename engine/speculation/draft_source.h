#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/speculation/drafter.h"

namespace minfer {

struct LiveRequest;
struct Sequence;

/// A sequence that is to bring drafts, and how many at the most.
struct DraftOrder {
  LiveRequest* request = nullptr;
  int32_t num_drafts = 0;
};

/// Makes the drafts of all sequences. Engine thread.
class DraftSource {
 public:
  DraftSource() = default;
  DraftSource(const DraftSource&) = delete;
  DraftSource& operator=(const DraftSource&) = delete;
  virtual ~DraftSource() = default;

  virtual std::unique_ptr<Drafter> make_drafter(const Sequence& sequence) = 0;
  /// Fills Sequence::drafts with as many as there are, up to what was ordered. Whatever they are, the output is the same.
  virtual void propose(std::span<const DraftOrder> orders) = 0;
  /// What making a draft token for each of some sequences takes; 0: next to nothing, or not known yet.
  virtual double pass_ns() const { return 0.0; }
  /// What a sequence's first draft takes beside, if it has had none for long; 0: next to nothing, or not known yet.
  virtual double catch_up_ns(const Drafter& /*drafter*/) const { return 0.0; }
};

}  // namespace minfer
