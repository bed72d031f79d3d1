#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiling/counters/counter_window.h"
#include "profiling/host/sampler.h"
#include "profiling/record/live_profile.h"
#include "profiling/record/recent_records.h"
#include "server/serving/engine/engine_service.h"
#include "server/serving/engine/metrics.h"

namespace minfer {

/// Facts of a running server that step records do not hold.
struct ServingState {
  std::string served_model_name;  ///< the name that clients give as `model`
  EngineStatus engine;
  RecentLatency ttft;
  RecentLatency itl;
  uint64_t generated_tokens = 0;  ///< since the start
  uint64_t dropped = 0;           ///< steps that the recorder's ring went without, since the start
  int64_t now_ns = 0;
  std::vector<CounterWindow> counters;  ///< the last windows of hardware counters
  std::vector<RankStep> rank_steps;     ///< times of the last steps on each of several ranks
  const RecentRecords* recent = nullptr;
  const HostSampler* host = nullptr;
  const DeviceSampler* devices = nullptr;
};

/// The body of GET /profile/steps: {"schema","header","newest","dropped","steps"}, `header` and
/// each of `steps` as in a profile file (step.schema.json). `newest`: the last step, -1 before
/// the first. With `since`, only the steps behind it, and no `header`: the client has it already.
std::string profile_steps_json(const LiveProfile& profile, size_t count, std::optional<int64_t> since,
                               uint64_t dropped);

/// The body of GET /profile/summary: model, device and ceilings; the engine's requests and KV blocks as of now; throughput of the last five
/// seconds; percentiles of latencies, in seconds; and under "report" what `minfer profile report -o json` says of the last `count` steps,
/// with all ops and the last windows of hardware counters, null before the first step.
std::string profile_summary_json(const LiveProfile& profile, size_t count, const ServingState& state);

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
