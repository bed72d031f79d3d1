#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "profiling/findings/evidence.h"
#include "profiling/record/recorder.h"

namespace minfer::test {

/// The costs of steps, in microseconds: a machine more even than any real one.
struct StepCosts {
  double host_us = 20.0;       ///< for a step, while no op runs
  double shared_us = 1'000.0;  ///< products: for a step, whatever its tokens
  double token_us = 20.0;      ///< products: for a token
  double attention_us = 0.01;  ///< for a token and each token before it
  double threads = 1.0;        ///< threads that share the ops' time
  double client_wait = 0.0;    ///< share of a request's time in which its answer waited for the client
};

/// Runs requests on a real engine, whose scheduler decides what each step computes, and puts the times of StepCosts into the records.
/// So the findings, and their estimated gains, depend on no clock.
class CostedRun final : public StepSink {
 public:
  /// `cores`: of the machine that this stands for.
  CostedRun(const EngineOptions& options, const StepCosts& costs, int32_t cores = 1);
  ~CostedRun() override;
  CostedRun(const CostedRun&) = delete;
  CostedRun& operator=(const CostedRun&) = delete;

  Engine& engine() { return *engine_; }
  /// Submits a greedy request of random tokens behind the `prefix`.
  void submit(int32_t prompt_tokens, int32_t output_tokens, const std::vector<TokenId>& prefix = {});
  /// Runs this number of steps, or until there is no work left.
  void run(int64_t steps = 1'000'000);

  /// The evidence of all steps so far.
  Evidence evidence() const;
  double wall_us() const { return clock_us_; }
  /// The longest time between two tokens of a decoding sequence: the time of the longest step that decodes.
  double longest_gap_us() const { return longest_gap_us_; }

  void consume(const StepRecord& record) noexcept override;
  void consume_request(const EndedRequest& request) noexcept override { requests_.push_back(request); }

 private:
  struct StepTime {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };

  StepCosts costs_;
  ProfileHeader header_;
  std::unique_ptr<Engine> engine_;
  StepSummariser summariser_;
  double clock_us_ = 0.0;
  double longest_gap_us_ = 0.0;
  std::vector<StepSummary> steps_;
  std::map<int64_t, StepTime> times_;
  std::map<std::string, int64_t> arrivals_ns_;
  std::vector<EndedRequest> requests_;
  int32_t num_submitted_ = 0;
};

}  // namespace minfer::test
