#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiling/findings/findings_report.h"
#include "profiling/report/device/counters_report.h"
#include "profiling/report/device/device_use.h"
#include "profiling/report/device/range_report.h"
#include "profiling/report/device/read_ahead.h"
#include "profiling/report/device/traced_breakdown.h"
#include "profiling/report/kernel_uses.h"
#include "profiling/report/outliers.h"
#include "profiling/summary/aggregate.h"
#include "profiling/summary/rank_report.h"

namespace minfer {

/// The longest steps, longest first; among equal steps, the earlier first. Keeps `count` at most.
class SlowestSteps {
 public:
  explicit SlowestSteps(size_t count) : count_(count) {}
  void add(const StepSummary& step);
  std::vector<StepSummary> steps() const;

 private:
  size_t count_;
  std::vector<StepSummary> heap_;  ///< the shortest first
};

/// The data of a report: sums over a profile. Their size does not depend on the number of steps.
struct ReportData {
  ProfileHeader header;
  std::vector<KernelLaunch> launches;
  std::vector<RangeLine> ranges;       ///< of the first rank
  std::vector<RangeLine> rank_ranges;  ///< of the others
  MemoryUse memory_at_end;             ///< total_bytes 0: not known
  std::string note;                    ///< the part left out since the file ends within a line; empty: none
  StepFilter filter;                   ///< the steps that were summed
  int64_t first_step = 0;              ///< of the file
  int64_t last_step = 0;
  int64_t recorded = 0;  ///< steps of the file
  Aggregate sum;
  std::array<StepBreakdown, 3> breakdown;  ///< by StepPhase
  TracedBreakdownSum::Result traced_breakdown;
  ViewSums views;
  ReadAheadSum read_ahead;
  CounterAggregate counters;      ///< of the first rank
  RankCounterSums rank_counters;  ///< of the others
  WindowCost window_cost;
  std::vector<StepSummary> slowest;
  Outliers outliers;
  LaunchQueue launch_queue;  ///< of traced ranges
  RankReport ranks;
  /// Over the whole file; empty if a filter leaves out steps.
  std::vector<DraftUse> drafts;
  std::optional<Diagnosis> diagnosis;
};

/// Sums up a profile while it is read.
class ReportSums : public ProfileVisitor {
 public:
  /// `slowest`: the number of slowest steps to keep.
  ReportSums(StepFilter filter, size_t slowest) : slowest_(slowest) { data_.filter = std::move(filter); }

  void header(ProfileHeader header) override;
  void launch(KernelLaunch launch) override {
    evidence_.launch(launch);
    data_.launches.push_back(std::move(launch));
  }
  void step(StepSummary& step) override { add(step); }
  void add(const StepSummary& step);
  void range(RangeLine range) override {
    (range.rank == 0 ? data_.ranges : data_.rank_ranges).push_back(std::move(range));
  }
  void traced_step(const StepKernels& step) override;
  void kernel(KernelLine kernel) override;
  void counters(CounterWindow window) override;
  void request(EndedRequest request) override { evidence_.request(std::move(request)); }
  void rank_step(const RankStep& step) override {
    evidence_.rank_step(step);
    ranks_.add(step);
  }
  void host(const HostSample& sample) override { evidence_.host(sample); }
  void device(const DeviceSample& sample) override { evidence_.device(sample); }
  void trial(KeptTrial trial) override { evidence_.trial(std::move(trial)); }
  void memory(MemoryUse memory) override { data_.memory_at_end = std::move(memory); }

  /// Returns the sums so far and leaves this object empty. `note`: the result of read_profile().
  ReportData finish(std::string note);
  /// The sums' memory outside the object itself, without the names.
  size_t bytes() const { return sums_.bytes() + traced_breakdown_.bytes(); }

 private:
  ReportData data_;
  Aggregator sums_;
  Evidence evidence_;
  WindowCostSum window_cost_;
  TracedBreakdownSum traced_breakdown_;
  SlowestSteps slowest_;
  OutlierSum outliers_;
  RankReportSum ranks_;
  std::vector<std::string> transfers_;  ///< ops that copy between host and device
};

}  // namespace minfer
