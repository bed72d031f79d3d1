#pragma once

#include <algorithm>

namespace minfer {

/// The time that may be spent on drafts before their worth is known: a share of the time of all steps
/// so far. So a draft model that proves too slow, or mostly wrong, has cost no more than that share.
class TrialBudget {
 public:
  static constexpr double kShare = 1.0 / 16.0;

  void step_took(double ns) { earned_ns_ += kShare * ns; }
  void spent(double ns) { spent_ns_ += ns; }
  /// The time left, in ns.
  double left_ns() const { return std::max(0.0, earned_ns_ - spent_ns_); }

 private:
  double earned_ns_ = 0.0;
  double spent_ns_ = 0.0;
};

}  // namespace minfer
