#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profiling/record/profile_header.h"
#include "profiling/record/recorder.h"
#include "profiling/summary/summary.h"

namespace minfer {

/// Summaries of the recorder's last steps, for viewers while the engine runs. Each step is
/// summarised once, when somebody asks for it. As many are kept as the recorder's ring holds. Any one thread
/// but the engine's may call it at a time; the engine thread pays the cost of StepRecorder::after().
class LiveProfile {
 public:
  /// `recorder` outlives this.
  LiveProfile(const StepRecorder& recorder, ProfileHeader header);

  /// Adds the steps that have ended since the last call.
  void refresh();

  const ProfileHeader& header() const { return header_; }
  bool beats_ceilings() const { return summariser_.beats_ceilings(); }
  /// At most the last `count` of the steps after step `since`, oldest first. Valid until refresh().
  std::span<const StepSummary> last(size_t count, int64_t since = -1) const;

 private:
  const StepRecorder& recorder_;
  const ProfileHeader header_;
  StepSummariser summariser_;
  std::vector<StepSummary> steps_;
};

/// The rates of computation in a window of time that ends now.
struct Throughput {
  double window_s = 0.0;
  double steps_per_s = 0.0;
  double prompt_tokens_per_s = 0.0;     ///< computed ones, without tokens from the prefix cache
  double generated_tokens_per_s = 0.0;  ///< sampled
};

/// The throughput of the steps that ended in the last `window_ns` before `now_ns`. `steps`: the newest ones, without gaps;
/// if they do not reach back that far, the window begins with the first step.
Throughput throughput(std::span<const StepSummary> steps, int64_t now_ns, int64_t window_ns);

}  // namespace minfer
