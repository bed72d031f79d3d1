#pragma once

#include <limits>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiling/record/recorder.h"
#include "profiling/report/text/table.h"
#include "server/bench/replay/recorded_load.h"

namespace minfer {

/// Figures of requests from their records. The formulas are the same for a recorded load and, as a sink of the recorder, for its replay.
class RequestFigures final : public StepSink {
 public:
  explicit RequestFigures(const BusyTime& busy = {}) : busy_(busy) {}
  void add(const EndedRequest& request);
  void consume(const StepRecord& step) noexcept override {
    busy_.add(step.start_ns, step.end_ns, step.batch);
  }
  void consume_request(const EndedRequest& request) noexcept override { add(request); }
  bool wants_requests() const noexcept override { return false; }
  bool wants_ended_requests() const noexcept override { return true; }

  /// Counts, duration (s, from the first arrival to the last end), busy_s (with work: steps and the gaps between
  /// them), output_throughput (tokens a second), mean_e2e_ms (from the arrival to the end), TTFT (ms, from the
  /// arrival to the first token) and ITL (ms, mean time between two tokens of a request that was not cancelled).
  nlohmann::ordered_json json() const;

 private:
  int64_t requests_ = 0, cancelled_ = 0, with_grammar_ = 0, with_drafts_ = 0, draft_tokens_ = 0,
          accepted_tokens_ = 0;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, output_tokens_ = 0;
  int64_t begin_ns_ = std::numeric_limits<int64_t>::max(), end_ns_ = 0;
  std::vector<double> e2e_ms_, ttft_ms_, itl_ms_;
  BusyTime busy_;
};

/// A replay against its record: `recorded`, `replayed` and `ratio` (replayed / recorded; null if recorded is 0) with the names of
/// RequestFigures::json(), `differences` of the current engine (`now`) from the recorded one, `notes` of what was not replayed.
nlohmann::ordered_json replay_json(const RecordedLoad& load, double speed, const RequestFigures& replayed,
                                   const ProfileHeader& now);

/// The same for people, without the notes.
Table replay_table(const nlohmann::ordered_json& replay);

}  // namespace minfer
