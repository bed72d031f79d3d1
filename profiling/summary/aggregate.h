#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "profiling/summary/distribution.h"
#include "profiling/summary/summary.h"

namespace minfer {

/// An op over all steps, layers and phases.
struct OpAggregate {
  std::string op;
  int64_t calls = 0;
  double us = 0.0;
  double bytes = 0.0;
  double flops = 0.0;
  double floor_us = 0.0;                ///< roofline time of all calls; 0: ceilings unknown
  Bound bound = Bound::unknown;         ///< the bound of most of its time
  Statistics call_us;                   ///< of each step's mean time of a call
  double idle_us = 0.0;                 ///< idle time of the device behind it
  double waited_us = 0.0;               ///< of an op between ranks, see OpSummary
  double link_bytes = 0.0;              ///< likewise
  int64_t experts_read = 0;             ///< by the calls with a known number
  int64_t calls_with_experts = 0;       ///< these calls
  std::map<int32_t, int64_t> launches;  ///< steps, by its kind of launch in them

  double mean_us() const { return calls > 0 ? us / static_cast<double>(calls) : 0.0; }
  double gbps() const { return us > 0.0 ? bytes / us * 1e-3 : 0.0; }
  double tflops() const { return us > 0.0 ? flops / us * 1e-6 : 0.0; }
  double roofline() const { return us > 0.0 ? floor_us / us : 0.0; }
  /// Mean number of experts that a call reads; 0: not known, or the op is no product of experts.
  double mean_experts() const {
    return calls_with_experts > 0
               ? static_cast<double>(experts_read) / static_cast<double>(calls_with_experts)
               : 0.0;
  }
  /// The time beyond the roofline's.
  double above_floor_us() const { return us > floor_us ? us - floor_us : 0.0; }
};

/// The difference between the times of steps and the engine's predictions.
struct PredictionError {
  int64_t steps = 0;    ///< with a prediction
  int64_t longer = 0;   ///< part of those: took longer
  double median = 0.0;  ///< |measured - expected| / measured
  double p95 = 0.0;
};

/// The errors of many steps, in bounded memory.
class PredictionErrors {
 public:
  void add(const StepSummary& step);
  PredictionError result() const;
  size_t bytes() const { return errors_.bytes(); }

 private:
  int64_t longer_ = 0;
  Distribution errors_;
};

/// Steps of one phase, or all.
struct StepGroup {
  int64_t steps = 0;
  double wall_us = 0.0;
  double gpu_us = 0.0;
  double idle_host_us = 0.0;    ///< see StepSummary
  double idle_device_us = 0.0;  ///< see StepSummary
  int64_t late_ops = 0;
  std::array<double, kHostSpans> host_us{};
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  Statistics step_us;  ///< wall time of a step
  PredictionError prediction;

  int64_t tokens() const { return prefill_tokens + decode_tokens; }
  double tokens_per_s() const { return wall_us > 0.0 ? static_cast<double>(tokens()) / wall_us * 1e6 : 0.0; }
  /// The wall time that neither ops nor host spans cover.
  double other_us() const;
  /// The device's wall time outside ops and outside the idle time within steps.
  double between_steps_us() const;
};

/// An op over the steps in which it worked on tokens of one kind.
struct PhaseOp {
  StepPhase phase = StepPhase::decode;
  OpAggregate sum;
};

struct Aggregate {
  StepGroup all;
  std::array<StepGroup, 3> by_phase;  ///< by StepPhase
  PhaseTime prefill;
  PhaseTime decode;
  std::vector<OpAggregate> ops;                               ///< most time first
  std::vector<PhaseOp> phase_ops;                             ///< ops by phase, most time first
  double attributed = 0.0;                                    ///< share of the wall time
  double least_attributed = 0.0;                              ///< of a single step
  std::map<std::string, int64_t, std::less<>> attributed_by;  ///< number of steps, by source of the figure
  int64_t by_begin_stamps = 0;  ///< steps whose op times rest on begin stamps alone
  uint64_t dropped = 0;
  DiskCounts disk;
};

/// Sums up steps as they come and keeps none. Its memory grows with the number of ops, not of steps. One thread at a time.
class Aggregator {
 public:
  /// The last steps that still accept kernels. The kernels' lines come after all steps of a traced range.
  static constexpr size_t kRecentSteps = 1u << 17;

  void add(const StepSummary& step);
  /// Sets the drops so far: all drops of the whole span, even if a filter leaves steps out.
  void set_dropped(uint64_t dropped) { result_.dropped = std::max(result_.dropped, dropped); }
  /// Adds the kernels' times of a step that was added before; ignored if the step is not recent.
  void add(const StepKernels& kernels);
  /// True if kernels of this step can still be added.
  bool is_recent(int64_t step) const;
  Aggregate result() const;
  /// The memory outside the object itself, without the names.
  size_t bytes() const;

 private:
  struct OpSum {
    StepPhase phase = StepPhase::decode;
    OpAggregate sum;
    std::array<double, 3> us_by_bound{};
    Distribution call_us;
    int32_t last_launch = -1;              ///< the last counted entry of sum.launches,
    int64_t* last_launch_steps = nullptr;  ///< which is most often also the next
  };
  struct GroupSum {
    StepGroup group;
    Distribution wall_us;
    PredictionErrors errors;
  };
  struct RecentStep {
    int64_t step = 0;
    double wall_us = 0.0;
    double attributed = 0.0;
    std::string_view by;
  };
  struct AttributedSum {
    double us = 0.0;
    double least = 1.0;
    std::map<std::string, int64_t, std::less<>> by;
    void add(const RecentStep& step);
  };
  static void add(GroupSum& sum, const StepSummary& step);
  static void add(OpSum& sum, const OpSummary& op);
  static void add(OpSum& sum, const OpSum& other);
  static OpAggregate finished(const OpSum& sum);
  OpSum& sum_of(const OpSummary& op, size_t place);

  GroupSum all_;
  std::array<GroupSum, 3> by_phase_;  ///< by StepPhase
  std::map<std::pair<std::string, StepPhase>, OpSum> ops_;
  std::vector<OpSum*> by_place_;   ///< the last step's ops; mostly also the next step's
  AttributedSum attributed_;       ///< of all but the recent steps
  std::deque<RecentStep> recent_;  ///< ascending
  Aggregate result_;               ///< as far as it is a plain sum
};

}  // namespace minfer
