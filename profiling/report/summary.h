#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profiling/json/profile_header.h"
#include "profiling/record/ceilings.h"
#include "profiling/record/device_idle.h"
#include "profiling/record/phase_split.h"
#include "profiling/record/step_record.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// What an op waits for at its best, by the roofline.
enum class Bound : uint8_t { unknown, memory, compute };
std::string_view name(Bound bound);

/// The phase whose tokens ops of `scope` work on in a step: mixed, if there are tokens of both.
StepPhase op_phase(TokenScope scope, const BatchShape& shape);

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
  double idle_us = 0.0;  ///< that the device idled behind it within the step; not part of `us`
  /// Of products of experts: those that were read, all layers together. -1: not known, and then `bytes` has the most that it can be.
  int64_t experts_read = -1;
  double waited_us = 0.0;         ///< of an op between ranks: until all had come, part of `us`; 0: not known
  int64_t link_bytes = 0;         ///< of an op between ranks: that each sends, see KernelWork
  std::vector<int32_t> launches;  ///< kinds of launches, each once: indices into the launch table

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

/// Where the attributed time of a step whose kernels were all traced comes from.
inline constexpr std::string_view kByKernels = "kernels";

/// One step with everything that a line of the profile file says.
struct StepSummary {
  int64_t step = 0;
  int64_t start_ns = 0;
  double wall_us = 0.0;
  /// Device time: the ops' own, without the idle time that was found between them. On the CPU backend the sum of the ops.
  double gpu_us = 0.0;
  double gpu_idle_us = 0.0;     ///< the rest of the step
  double idle_host_us = 0.0;    ///< part of it: between two ops, where the host launched the second too late
  double idle_device_us = 0.0;  ///< part of it: between two ops, where the second had been launched in time
  int32_t late_ops = 0;         ///< ops that the device waited for the host to launch
  bool on_device = false;       ///< ops ran beside the host
  IdleSource idle_source = IdleSource::none;  ///< how idle time between ops was found
  StepBatch batch;
  std::array<double, kHostSpans> host_us{};
  PhaseTime prefill;  ///< shares of the device time, by kPhaseRule; they add up to it
  PhaseTime decode;
  std::vector<OpSummary> ops;   ///< in the order they first run
  std::vector<LayerOp> layers;  ///< only with ProfileDetail::layer
  /// Share of the wall time: on a device with an op running (gpu_us), otherwise covered by ops and host spans. As its line says it,
  /// which is written before kernels are known.
  double attributed = 0.0;
  std::optional<StepKernels> kernels = std::nullopt;  ///< of a traced range, when it is read
  std::vector<std::string> requests;
  std::vector<uint32_t> served = {};  ///< the same by EndedRequest::number; empty in files
  uint64_t dropped = 0;               ///< steps lost before this one since the writer began

  StepPhase phase() const { return batch.phase(); }
  int64_t end_ns() const { return start_ns + static_cast<int64_t>(wall_us * 1e3); }
  /// Time in which no op ran and the device, or the ops' threads, waited for the host, which did not wait itself.
  double exposed_us() const;
  /// What `attributed` comes from: "host clocks", or how the device's idle time was found.
  std::string_view attributed_by() const { return on_device ? name(idle_source) : "host clocks"; }
  /// The same from the best source that there is: its kernels, if all of them were traced.
  double best_attributed() const;
  std::string_view best_attributed_by() const { return has_kernels() ? kByKernels : attributed_by(); }
  bool has_kernels() const { return kernels && kernels->is_whole(); }
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
  /// Ops were faster than the ceilings allow, for no cause but that these were measured too low: by their arithmetic, or by more bytes
  /// than caches hold that nothing read ahead.
  bool beats_ceilings() const { return beating_steps_ >= kBeatingSteps; }

 private:
  static constexpr int64_t kBeatingSteps = 3;
  struct Group {
    std::string name;
    TokenScope scope;
    double ops = 0.0;
    UnitShares units = {};  ///< summed over them
    UnitShares shares() const { return {units.fp8 / ops, units.vectors / ops}; }
  };
  bool is_known(OpId op) const { return op >= 0 && static_cast<size_t>(op) < ops_.size(); }
  struct OpRun {
    OpId op = -1;
    BusyOp busy;
    std::span<const int32_t> launches;
    int32_t experts_read = -1;
    int64_t waited_ns = 0;
    bool first = false;  ///< of its op in the step
  };
  OpSummary& summary_of(StepSummary& summary, std::vector<int32_t>& rows, OpId op,
                        const BatchShape& shape) const;
  void add_op(StepSummary& summary, std::vector<int32_t>& rows, const OpRun& run,
              const BatchShape& shape) const;
  void add_idle(StepSummary& summary, const BusyOp& busy) const;

  std::vector<OpInfo> ops_;
  Ceilings ceilings_;
  ProfileDetail detail_;
  std::vector<Group> groups_;      ///< ops of one name and scope
  std::vector<int32_t> group_of_;  ///< by OpId
  PhaseCosts costs_;
  IdleFinder idle_;
  int64_t beating_steps_ = 0;
};

}  // namespace minfer
