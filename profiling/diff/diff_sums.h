#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "profiling/json/json_reader.h"
#include "profiling/summary/distribution.h"

namespace minfer {

/// Steps that do the same work: one phase and one padded batch. In steps with prefill, tokens are rounded up to a power of two.
struct StepKind {
  StepPhase phase = StepPhase::decode;
  int32_t tokens = 0;  ///< 0: any number
  auto operator<=>(const StepKind&) const = default;
  std::string text() const;  ///< "decode of 64 tokens"
};
StepKind kind_of(const StepBatch& batch);

/// An op and the phase of its tokens.
struct DiffOpKey {
  std::string op;
  StepPhase phase = StepPhase::decode;
  auto operator<=>(const DiffOpKey&) const = default;
};

/// Times of one kind of step, in microseconds.
struct KindSum {
  Moments wall_us;
  Moments tokens;
  Moments rest_us;  ///< wall time outside the ops
  struct Op {
    Moments us;  ///< of the steps that ran it
    double bytes = 0.0;
    std::map<int32_t, int64_t> launches;  ///< steps, by the op's kind of launch in them
  };
  std::map<DiffOpKey, Op> ops;

  void add(const KindSum& other);
};

/// The sums of a profile for a comparison. Their size grows with the ops and kinds of steps, not with the number of steps.
class DiffSums final : public ProfileVisitor {
 public:
  void header(ProfileHeader header) override { header_ = std::move(header); }
  void launch(KernelLaunch launch) override { launches_.push_back(std::move(launch)); }
  void step(StepSummary& step) override;

  const ProfileHeader& header() const { return header_; }
  const std::vector<KernelLaunch>& launches() const { return launches_; }
  const std::map<StepKind, KindSum>& kinds() const { return kinds_; }

 private:
  ProfileHeader header_;
  std::vector<KernelLaunch> launches_;
  std::map<StepKind, KindSum> kinds_;
};

}  // namespace minfer
