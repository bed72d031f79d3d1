#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "profiling/record/ceilings.h"
#include "profiling/record/device_idle.h"
#include "profiling/record/phase_split.h"
#include "profiling/record/profile_header.h"
#include "profiling/record/step_record.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// The limit of an op at its best, by the roofline.
enum class Bound : uint8_t { unknown, memory, compute };
std::string_view name(Bound bound);

/// An op of one step, summed over layers.
struct OpSummary {
  std::string op;
  StepPhase phase = StepPhase::decode;  ///< of the tokens it worked on
  int32_t calls = 0;
  double us = 0.0;
  int64_t bytes = 0;  ///< least bytes moved, see op_work()
  int64_t flops = 0;
  double floor_us = 0.0;  ///< least time by the roofline; 0: ceilings unknown
  Bound bound = Bound::unknown;
  double idle_us = 0.0;  ///< idle time of the device behind it within the step; not part of `us`
  /// For products of experts: the experts read, over all layers. -1: not known; then `bytes` is the most that they can be.
  int64_t experts_read = -1;
  double waited_us = 0.0;         ///< op between ranks: part of `us` until all had come; 0: not known
  int64_t link_bytes = 0;         ///< op between ranks: bytes that each rank sends, see KernelWork
  std::vector<int32_t> launches;  ///< kinds of launches, each once: indices into the launch table

  double gbps() const { return us > 0.0 ? static_cast<double>(bytes) / us * 1e-3 : 0.0; }
  double tflops() const { return us > 0.0 ? static_cast<double>(flops) / us * 1e-6 : 0.0; }
  /// The share of the attainable speed; over 1 if the data came from a cache instead of memory.
  double roofline() const { return us > 0.0 ? floor_us / us : 0.0; }
};

/// An op of one layer; layer -1 stands for the ops before and after the layers.
struct LayerOp {
  int32_t layer = -1;
  std::string op;
  StepPhase phase = StepPhase::decode;
  double us = 0.0;
};

/// Device time charged to a phase.
struct PhaseTime {
  double us = 0.0;
  int64_t tokens = 0;
};

/// The source of the attributed time of a step whose kernels were all traced.
inline constexpr std::string_view kByKernels = "kernels";

/// One step with all the facts of its line in the profile file.
struct StepSummary {
  int64_t step = 0;
  int64_t start_ns = 0;
  double wall_us = 0.0;
  /// The device time: the ops' times, without the idle time found between them. On the CPU backend, the sum of the ops.
  double gpu_us = 0.0;
  double gpu_idle_us = 0.0;     ///< the rest of the step
  double idle_host_us = 0.0;    ///< part of it: between two ops, if the host launched the second too late
  double idle_device_us = 0.0;  ///< part of it: between two ops, if the second was launched in time
  int32_t late_ops = 0;         ///< ops for whose launch the device waited
  bool on_device = false;       ///< ops ran in parallel with the host
  IdleSource idle_source = IdleSource::none;  ///< the method that found idle time between ops
  StepBatch batch;
  std::array<double, kHostSpans> host_us{};
  PhaseTime prefill;  ///< shares of the device time by kPhaseRule; both add up to it
  PhaseTime decode;
  std::vector<OpSummary> ops;   ///< in the order they first run
  std::vector<LayerOp> layers;  ///< only with ProfileDetail::layer
  /// The attributed share of the wall time. On a device: the time with an op running (gpu_us). Otherwise: the time covered by ops and
  /// host spans. It is the value on the step's line, which is written before kernels are known.
  double attributed = 0.0;
  std::optional<StepKernels> kernels = std::nullopt;  ///< set for a traced range, once its lines are read
  std::vector<std::string> requests;
  std::vector<uint32_t> served = {};  ///< the same requests by EndedRequest::number; empty in files
  uint64_t dropped = 0;               ///< steps lost before this one since the writer began

  StepPhase phase() const { return batch.phase(); }
  int64_t end_ns() const { return start_ns + static_cast<int64_t>(wall_us * 1e3); }
  /// The time in which no op ran, and the device or the ops' threads waited for the host, which did not wait itself.
  double exposed_us() const;
  /// The source of `attributed`: "host clocks", or the method that found the device's idle time.
  std::string_view attributed_by() const { return on_device ? name(idle_source) : "host clocks"; }
  /// The attributed share from the best source: the step's kernels, if all of them were traced.
  double best_attributed() const;
  std::string_view best_attributed_by() const { return has_kernels() ? kByKernels : attributed_by(); }
  bool has_kernels() const { return kernels && kernels->is_whole(); }
};

/// Selects steps of a profile.
struct StepFilter {
  std::optional<StepPhase> phase = std::nullopt;
  std::optional<std::pair<int64_t, int64_t>> steps = std::nullopt;  ///< first and last, both included
  std::string request = {};  ///< a request that they served; empty: any

  bool is_all() const { return !phase && !steps && request.empty(); }
  bool takes(const StepSummary& step) const;
  /// E.g. "decode steps from 10 to 20 of request r-1"; for every step, "steps".
  std::string text() const;
};

/// Turns records into summaries. Remembers each op's costs in pure decode steps (PhaseCosts), so it needs
/// every step, in order. One thread at a time.
class StepSummariser {
 public:
  StepSummariser(std::span<const OpInfo> ops, const Ceilings& ceilings, ProfileDetail detail);

  /// Learns from the record's times, without a summary, for a step that nobody wants to see.
  void observe(const StepRecord& record);
  /// Observes the record, then summarises it. Stamps whose OpId is not in the op table count as unattributed time.
  StepSummary summarise(const StepRecord& record);
  /// True if ops were faster than the ceilings allow, so the ceilings were measured too low. The op's arithmetic was too fast, or its
  /// bytes, more than caches hold and not read ahead.
  bool beats_ceilings() const { return beating_steps_ >= kBeatingSteps; }

 private:
  static constexpr int64_t kBeatingSteps = 3;
  struct Group {
    std::string name;
    TokenScope scope;
    double ops = 0.0;
    UnitShares units = {};  ///< summed over the ops
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
