#pragma once

#include <cstdint>
#include <string>

#include "profiling/record/live_profile.h"
#include "profiling/record/recent_requests.h"
#include "server/serving/profile/profile_summary.h"

namespace minfer {

/// The data of the live page, made again and again. The costliest part, the report
/// on the last steps, is made only when there are new steps. One thread at a time.
class PageEvents {
 public:
  /// Steps that are drawn one by one.
  static constexpr size_t kSteps = 120;
  static constexpr size_t kRequests = 64;  ///< that have ended, listed
  /// Steps that the report adds up.
  static constexpr size_t kReportSteps = 1000;

  /// A document of schema minfer.page/1 on one line: "live" (/profile/summary
  /// without its report), the report beside it, and requests that have ended.
  std::string json(const LiveProfile& profile, const ServingState& state,
                   const std::vector<EndedRequest>& requests);

 private:
  int64_t newest_step_ = -1;
  size_t counter_windows_ = 0;
  std::string report_ = "null";
  std::string view_ = "null";
};

}  // namespace minfer
