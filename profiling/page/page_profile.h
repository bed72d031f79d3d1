#pragma once

#include <memory>
#include <string>
#include <vector>

#include "profiling/page/device_time.h"
#include "profiling/page/thinned_steps.h"
#include "profiling/report/report_data.h"
#include "profiling/requests/slow_requests.h"

namespace minfer {

/// The page's data of a profile, gathered while the profile is read twice. Memory grows by 24 bytes a step.
class PageProfile final : public ReportSums {
 public:
  static constexpr size_t kMostRequests = 1000;

  PageProfile();
  void step(StepSummary& step) override;
  void request(EndedRequest request) override;

  /// Receives the steps of the second reading, for the requests in json().
  std::unique_ptr<ProfileVisitor> second_reading();
  /// Returns a document of schema minfer.page/1 and leaves this empty. `name`: the file's; `note`: the result of read_profile(). Throws
  /// Error if there is no step.
  std::string json(const std::string& name, std::string note);

 private:
  ThinnedSteps steps_;
  DeviceTime device_;
  SlowestRequests requests_{RequestOrder::e2e, kMostRequests};
  std::vector<RequestWaterfall> waterfalls_;  ///< of these, in the order of arrival
};

}  // namespace minfer
