#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/request/drafter.h"

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
  /// Whether it is known what drafts take to make and how often they are right. Until then not much is spent on them.
  virtual bool is_known() const { return true; }
  /// What making a draft token for each of some sequences takes; 0: next to nothing, or not known yet.
  virtual double pass_ns() const { return 0.0; }
  /// Tokens that have to be computed before a sequence's first draft, if it has had none for long.
  virtual int32_t num_behind(const Drafter& /*drafter*/) const { return 0; }
  /// What each of these takes; 0: next to nothing, or not known yet.
  virtual double token_ns() const { return 0.0; }
};

}  // namespace minfer
