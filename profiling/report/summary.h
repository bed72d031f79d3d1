#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiling/json/profile_header.h"
#include "profiling/record/ceilings.h"
#include "profiling/record/phase_split.h"
#include "profiling/record/step_record.h"

namespace minfer {

/// What an op waits for at its best, by the roofline.
enum class Bound : uint8_t { unknown, memory, compute };
std::string_view name(Bound bound);

/// An op of one step, summed over layers.
struct OpSummary {
  std::string op;
  StepPhase phase = StepPhase::decode;  ///< whose tokens it worked on
  int32_t calls = 0;
  double us = 0.0;
  int64_t bytes = 0;  ///< moved at the least, see op_work()
  int64_t flops = 0;
  double floor_us = 0.0;  ///< what the roofline allows for this work; 0: ceilings unknown
  Bound bound = Bound::unknown;

  double gbps() const { return us > 0.0 ? static_cast<double>(bytes) / us * 1e-3 : 0.0; }
  double tflops() const { return us > 0.0 ? static_cast<double>(flops) / us * 1e-6 : 0.0; }
  /// Share of the attainable speed; over 1 when the data came from a cache instead of memory.
  double roofline() const { return us > 0.0 ? floor_us / us : 0.0; }
};

/// An op of one layer; layer -1 is what stands before and after the layers.
struct LayerOp {
  int32_t layer = -1;
  std::string op;
  StepPhase phase = StepPhase::decode;
  double us = 0.0;
};

struct PhaseTime {
  double us = 0.0;
  int32_t tokens = 0;
};

/// One step with everything that a line of the profile file says.
struct StepSummary {
  int64_t step = 0;
  int64_t start_ns = 0;
  double wall_us = 0.0;
  double gpu_us = 0.0;  ///< device time: with at least one op running. On the CPU backend the sum of the ops
  double gpu_idle_us = 0.0;  ///< the rest of the step
  StepBatch batch;
  std::array<double, kHostSpans> host_us{};
  PhaseTime prefill;  ///< shares of the device time, by kPhaseRule; they add up to it
  PhaseTime decode;
  std::vector<OpSummary> ops;   ///< in the order they first run
  std::vector<LayerOp> layers;  ///< only with ProfileDetail::layer
  double attributed = 0.0;      ///< share of the wall time that host spans and ops cover
  std::vector<std::string> requests;
  uint64_t dropped = 0;  ///< steps lost before this one since the writer began

  StepPhase phase() const { return batch.phase(); }
};

/// Turns records into summaries. Keeps what pure decode steps taught it about each op (PhaseCosts), so it is
/// given every step in order. One thread at a time.
class StepSummariser {
 public:
  StepSummariser(std::span<const OpInfo> ops, const Ceilings& ceilings, ProfileDetail detail);

  /// Learns from the record's times; all that is needed of a step that nobody wants to see.
  void observe(const StepRecord& record);
  /// Observes, then summarises. Stamps whose OpId is not in the op table count as unattributed time.
  StepSummary summarise(const StepRecord& record);

 private:
  struct Group {
    std::string name;
    TokenScope scope;
  };
  StepPhase op_phase(TokenScope scope, const BatchShape& shape) const;
  void add_op(StepSummary& summary, std::vector<int32_t>& rows, OpId op, double us, const BatchShape& shape,
              bool first) const;

  std::vector<OpInfo> ops_;
  Ceilings ceilings_;
  ProfileDetail detail_;
  std::vector<Group> groups_;      ///< ops of one name and scope
  std::vector<int32_t> group_of_;  ///< by OpId
  PhaseCosts costs_;
};

}  // namespace minfer
