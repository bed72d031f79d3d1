#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/comm/process_group.h"
#include "profiling/record/rank_step.h"

namespace minfer {

/// What steps took on a rank of another process, on its way to the first one: a message a step, which nobody waits for. Of the rank
/// that follows.
class StepReports {
 public:
  StepReports(std::shared_ptr<ProcessGroup> processes, std::chrono::milliseconds patience)
      : processes_(std::move(processes)), patience_(patience) {}
  void send(const RankStep& step);
  /// The last one: waits until the first rank has taken all.
  void end();

 private:
  struct Sent {
    std::array<RankStep, 1> step;
    Transfer transfer;
  };
  std::shared_ptr<ProcessGroup> processes_;
  std::chrono::milliseconds patience_;
  std::deque<Sent> under_way_;
};

/// Appends what has come from all other ranks, without waiting. Of the first rank.
void take_reports(ProcessGroup& processes, std::vector<RankStep>& steps);
/// Waits for the end of all other ranks' reports, and leaves out what comes before.
void end_reports(ProcessGroup& processes, std::chrono::milliseconds patience);

}  // namespace minfer
