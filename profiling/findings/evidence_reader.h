#pragma once

#include <optional>

#include "profiling/findings/findings_report.h"
#include "profiling/json/json_reader.h"

namespace minfer {

/// Gathers the evidence of a profile while it is read.
class EvidenceReader final : public ProfileVisitor {
 public:
  void header(ProfileHeader header) override { evidence_.emplace(header); }
  void launch(KernelLaunch launch) override { evidence_->add(launch); }
  void step(StepSummary& step) override { add(step); }
  void add(const StepSummary& step) { evidence_->add(step); }
  /// With several ranks, only the first rank's kernels count, as for its ops.
  void traced_step(const StepKernels& step) override {
    if (step.rank == 0) evidence_->add(step);
  }
  void kernel(KernelLine kernel) override {
    if (kernel.rank == 0) evidence_->add(kernel);
  }
  void counters(CounterWindow window) override { evidence_->add(window); }
  void request(EndedRequest request) override { evidence_->add(request); }
  void rank_step(const RankStep& step) override { evidence_->add(step); }
  void host(const HostSample& sample) override { evidence_->add(sample); }
  void device(const DeviceSample& sample) override { evidence_->add(sample); }
  void trial(KeptTrial trial) override { evidence_->add(std::move(trial)); }

  /// Valid once the header of a profile has come.
  const Evidence& evidence() const { return *evidence_; }

 private:
  std::optional<Evidence> evidence_;
};

}  // namespace minfer
