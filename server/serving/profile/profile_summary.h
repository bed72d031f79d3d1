#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiling/counters/latest_counters.h"
#include "profiling/record/recent_records.h"
#include "profiling/summary/live_profile.h"
#include "server/http/event_loop.h"
#include "server/serving/engine/engine_service.h"
#include "server/serving/engine/metrics.h"
#include "server/serving/engine/server_log.h"

namespace minfer {

/// The sources of the profile's routes, beside the records of steps; all of them outlive the routes.
struct ProfileSources {
  TaskRunner& loop;
  Engine& engine;
  EngineService& engine_service;
  const Metrics& metrics;
  ServerLog& log;
  const LatestCounters* counters;  ///< null: hardware counters are not read
  const RecentRecords& recent;
  std::string served_model_name;  ///< the name that clients give as `model`

  /// The last windows of hardware counters.
  std::vector<CounterWindow> counter_windows() const {
    return counters != nullptr ? counters->all() : std::vector<CounterWindow>();
  }
};

/// The body of GET /profile/steps: {"schema","header","newest","dropped","steps"}, `header` and
/// each of `steps` as in a profile file (step.schema.json). `newest`: the last step, -1 before
/// the first. With `since`, only the steps behind it, and no `header`: the client has it already.
std::string profile_steps_json(const LiveProfile& profile, size_t count, std::optional<int64_t> since,
                               uint64_t dropped);

/// The body of GET /profile/summary: model, device and ceilings; the engine's requests and KV blocks as of now; throughput of the last five
/// seconds; percentiles of latencies, in seconds; and under "report" what `minfer profile report -o json` says of the last `count` steps,
/// with all ops and the last windows of hardware counters, null before the first step.
std::string profile_summary_json(const LiveProfile& profile, size_t count, const ProfileSources& sources);

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
  std::string json(const LiveProfile& profile, const ProfileSources& sources,
                   const std::vector<EndedRequest>& requests);

 private:
  int64_t newest_step_ = -1;
  size_t counter_windows_ = 0;
  std::string report_ = "null";
  std::string view_ = "null";
};

}  // namespace minfer
