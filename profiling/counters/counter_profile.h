#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "kernels/op.h"
#include "profiling/counters/counter_window.h"
#include "profiling/counters/sample_attribution.h"
#include "profiling/record/step_record.h"

namespace minfer {

/// Matches samples of counters with the records of the steps that ran meanwhile. Estimates of ops rest on the
/// steps of the last windows, since a window of some milliseconds holds few steps. Pure; one thread at a time.
class CounterProfile {
 public:
  static constexpr size_t kWindows = 8;

  explicit CounterProfile(std::span<const OpInfo> ops) : ops_(ops.begin(), ops.end()) {}

  /// `records`: of the steps that ran during the samples, in order, each once; nothing is known
  /// of the time of steps without a record.
  CounterWindow add(CounterSamples samples, std::span<const StepRecord> records, const CounterSetup& setup);

 private:
  /// Steps with equal keys launch the same kernels.
  struct WorkKey {
    std::vector<OpId> ops;  ///< in running order
    int32_t graph_batch = 0;
    int32_t decode_tokens = 0;  ///< 0 in a graph with one token a sequence: its batch sets its kernels
    int32_t prefill_tokens = 0;
    auto operator<=>(const WorkKey&) const = default;
  };
  struct Step {
    int64_t step = 0;
    WorkKey key;
    StepBatch batch;
    std::vector<int64_t> bounds_ns;
    std::vector<int32_t> experts_read;  ///< by op of the key, see StepStamps
  };
  struct Window {
    CounterSamples samples;
    std::vector<Step> steps;
  };
  struct Work {
    int32_t first_slot = 0;
    int64_t steps = 0;
    int64_t replays = 0;
    StepBatch batch;                         ///< of one of its steps
    std::vector<double> counted_read_bytes;  ///< by op of the key, summed over replays
  };
  using Works = std::map<WorkKey, Work>;

  static Step step_of(const StepRecord& record);
  static std::vector<StepSpans> spans_of(const Window& window, const Works& works);
  Works works_of_all() const;
  Window& keep(CounterSamples samples, std::span<const StepRecord> records);
  static int64_t align(Window& window, const Works& works);
  const OpInfo* info_of(OpId op) const;
  std::vector<CounterStep> whole_steps(const Window& window, int64_t interval_ns) const;
  std::vector<CounterOp> ops_of(const WorkKey& key, const Work& work, std::span<const OpEstimate> estimates,
                                const CounterSamples& columns) const;

  const std::vector<OpInfo> ops_;
  std::deque<Window> windows_;
  bool is_first_ = true;
};

}  // namespace minfer
