#pragma once

#include <memory>
#include <string>
#include <vector>

#include "profiling/json/json_reader.h"
#include "profiling/page/device_time.h"
#include "profiling/page/thinned_steps.h"
#include "profiling/report/report_data.h"
#include "profiling/requests/slow_requests.h"

namespace minfer {

/// The page's data of a profile, gathered while the profile is read twice. Memory grows by 24 bytes a step.
class PageProfile final : public ProfileVisitor {
 public:
  static constexpr size_t kMostRequests = 1000;

  PageProfile();
  void header(ProfileHeader header) override { sums_.header(std::move(header)); }
  void launch(KernelLaunch launch) override { sums_.launch(std::move(launch)); }
  void step(StepSummary& step) override;
  void range(RangeLine range) override { sums_.range(std::move(range)); }
  void traced_step(const StepKernels& step) override { sums_.traced_step(step); }
  void kernel(KernelLine kernel) override { sums_.kernel(std::move(kernel)); }
  void counters(CounterWindow window) override { sums_.counters(std::move(window)); }
  void request(EndedRequest request) override;
  void rank_step(const RankStep& step) override { sums_.rank_step(step); }
  void memory(MemoryUse memory) override { sums_.memory(std::move(memory)); }
  void host(const HostSample& sample) override { sums_.host(sample); }
  void device(const DeviceSample& sample) override { sums_.device(sample); }
  void trial(KeptTrial trial) override { sums_.trial(std::move(trial)); }

  /// Receives the steps of the second reading, for the requests in json().
  std::unique_ptr<ProfileVisitor> second_reading();
  /// Returns a document of schema minfer.page/1 and leaves this empty. `name`: the file's; `note`: the result of read_profile(). Throws
  /// Error if there is no step.
  std::string json(const std::string& name, std::string note);

 private:
  ReportSums sums_;
  ThinnedSteps steps_;
  DeviceTime device_;
  SlowestRequests requests_{RequestOrder::e2e, kMostRequests};
  std::vector<RequestWaterfall> waterfalls_;  ///< of these, in the order of arrival
};

}  // namespace minfer
