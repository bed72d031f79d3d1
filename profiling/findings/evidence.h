#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiling/findings/draft_evidence.h"
#include "profiling/findings/line_fit.h"
#include "profiling/findings/same_work.h"
#include "profiling/findings/sample_evidence.h"
#include "profiling/json/json_reader.h"
#include "profiling/summary/aggregate.h"
#include "profiling/summary/rank_report.h"
#include "profiling/summary/summary.h"

namespace minfer {

/// Steps of one phase. Times in microseconds.
struct PhaseEvidence {
  int64_t steps = 0;
  double wall_us = 0.0;
  double ops_us = 0.0;
  double exposed_us = 0.0;  ///< no op ran: the device or the ops' threads waited for the working host
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  int64_t decode_sequences = 0;  ///< summed over steps
  LineFit wall_by_tokens;

  double mean_wall_us() const { return steps > 0 ? wall_us / static_cast<double>(steps) : 0.0; }
  double mean_sequences() const {
    return steps > 0 ? static_cast<double>(decode_sequences) / static_cast<double>(steps) : 0.0;
  }
};

/// The number of steps with some property, and their time.
struct StepCount {
  int64_t steps = 0;
  double us = 0.0;
  void add(double wall_us) {
    ++steps;
    us += wall_us;
  }
};

/// Similar steps: one phase, one graph, and prompt tokens within one power of two.
struct KindTimes {
  double first_us = 0.0;
  StepCount later;
};

/// Steps that decode one sequence with a much longer context than the others: is_uneven().
struct UnevenSteps {
  StepCount steps;
  int64_t sequences = 0;
  double longest = 0.0, others = 0.0;  ///< contexts, the others' mean, summed over steps
  double attention_us = 0.0;           ///< of decoding
  double keys_us = 0.0;                ///< part of it: the extra time for the longest sequence's keys
  double wait_us = 0.0;                ///< the same, if attention lasts until the longest sequence is done
};

/// Decode steps since the last step with prompts or with waiting requests.
struct LastSteps {
  StepCount steps;
  int64_t sequences = 0;
  int32_t most = 0;  ///< sequences

  double mean_sequences() const { return static_cast<double>(sequences) / static_cast<double>(steps.steps); }
  bool shrinks() const { return steps.steps >= 8 && mean_sequences() <= 0.75 * most; }
};

struct StepEvidence {
  std::array<PhaseEvidence, 3> by_phase;  ///< by StepPhase
  double wall_us = 0.0;                   ///< of the steps, and of gaps with work between them: see bubble
  StepCount bubble;                       ///< gaps in front of steps that went on with earlier requests
  double idle_us = 0.0;                   ///< gaps without work
  std::array<double, kHostSpans> host_us{};
  double prefill_us = 0.0;       ///< part of the ops' time, by the header's rule
  LineFit wall_by_tokens;        ///< of steps of all phases
  double idle_host_us = 0.0;     ///< inside steps, before ops that the host launched late
  double kept_waiting_us = 0.0;  ///< no op ran although the host waited for the next op
  int64_t late_ops = 0;
  StepCount waiting;      ///< requests were queued
  StepCount slots_full;   ///< part of `waiting`: as many sequences ran as may run
  StepCount memory_full;  ///< part of `waiting`: slots and tokens were left, so KV blocks were scarce
  double memory_full_decode_us = 0.0;  ///< part of that time, without the ops of prompts
  int32_t memory_full_wanted = 0;      ///< most sequences and waiting requests in one of those steps
  StepCount decode_fills_budget;       ///< part of `waiting`: decoding took most of the token budget
  StepCount cut_prefill;   ///< prompts filled the token budget, so that some went on in a later step
  int64_t cut_tokens = 0;  ///< prompt tokens in those
  StepCount few;           ///< decode steps of at most kFewSequences, without drafts or waiting requests
  int64_t few_sequences = 0;
  int64_t blocked_tokens = 0;  ///< tokens that came in mixed steps
  double longest_mixed_us = 0.0;
  PredictionErrors mixed_errors;  ///< of mixed steps with a chosen prefill budget
  int64_t preempted = 0;
  int64_t constrained_rows = 0;
  UnevenSteps uneven;
  LastSteps last;
  double drafted_late_us = 0.0;     ///< part of idle_host_us: steps with draft tokens
  double drafted_exposed_us = 0.0;  ///< part of exposed_us(), likewise
  int64_t padded_tokens = 0;
  int64_t graph_tokens = 0;
  StepCount graph;  ///< decode steps without draft tokens that replayed a graph
  StepCount eager;  ///< the same, on a device, without a graph
  int64_t eager_launches = 0;
  StepCount eager_looked_at;             ///< part of `eager`: steps with the ends of all ops
  double eager_looked_at_idle_us = 0.0;  ///< time in them in which no op ran

  const PhaseEvidence& of(StepPhase phase) const { return by_phase[static_cast<size_t>(phase)]; }
  int64_t steps() const { return total(&PhaseEvidence::steps); }
  double ops_us() const { return total(&PhaseEvidence::ops_us); }
  double exposed_us() const { return total(&PhaseEvidence::exposed_us); }
  int64_t prefill_tokens() const { return total(&PhaseEvidence::prefill_tokens); }
  int64_t decode_tokens() const { return total(&PhaseEvidence::decode_tokens); }

 private:
  template <class Sum>
  Sum total(Sum PhaseEvidence::*field) const {
    Sum sum{};
    for (const PhaseEvidence& phase : by_phase)
      sum += phase.*field;
    return sum;
  }
};

struct RequestEvidence {
  int64_t requests = 0;
  double queue_us = 0.0, prefill_us = 0.0, decode_us = 0.0;
  int64_t prompt_tokens = 0, cached_tokens = 0, recomputed_tokens = 0;
  int64_t preempted_requests = 0;
  int64_t stream_interval = 0;  ///< summed over requests
  /// Prompt tokens that match the begin of an earlier prompt and were not taken from the cache. The first token of that prompt had come
  /// before this request was first scheduled. A lower bound: prefixes are compared at some lengths only.
  int64_t missed_tokens = 0;
  int64_t missed_requests = 0;
  double client_wait_us = 0.0;
  double waited_for_us = 0.0;  ///< time of the requests with a known wait
  LineFit wait_by_arrival;  ///< wait for the first token, by s after the arrival of the first ended request
  int64_t first_arrival_ns = 0, last_arrival_ns = 0, last_end_ns = 0;

  /// How many times as fast requests came as they were served, if each waited longer than the one before; 0: the waits did not grow, or
  /// all requests came at once.
  double outpaced() const;
  double total_us() const { return queue_us + prefill_us + decode_us; }
  /// The share of the time from the first arrival to the last end in which requests still came.
  double arriving_share() const {
    return last_end_ns > first_arrival_ns ? static_cast<double>(last_arrival_ns - first_arrival_ns) /
                                                static_cast<double>(last_end_ns - first_arrival_ns)
                                          : 0.0;
  }
};

/// An op that works on tokens of one phase, over all steps and layers.
struct OpEvidence {
  std::string op;
  StepPhase phase = StepPhase::decode;
  OpKind kind = OpKind::transfer;
  int64_t calls = 0;
  double us = 0.0;
  double floor_us = 0.0;   ///< least time by the roofline; 0: ceilings unknown
  double memory_us = 0.0;  ///< time under the memory roof
  double bytes = 0.0;
  double flops = 0.0;
  double weights = 0.0;                ///< elements, mean over layers
  double weight_bytes = 0.0;           ///< in the model's types, mean over layers
  UnitShares units = {};               ///< of its layers
  std::map<int32_t, double> launches;  ///< its time, by its largest kernel in a step

  double roofline() const { return us > 0.0 ? floor_us / us : 0.0; }
  bool memory_bound() const { return memory_us * 2.0 > us; }
  double call_us() const { return calls > 0 ? us / static_cast<double>(calls) : 0.0; }
};

/// Copies in traced ranges.
struct RangeEvidence {
  int64_t steps = 0;
  double kernels_us = 0.0;  ///< of the traced steps, from first to last kernel, busy and idle
  double lines_us = 0.0;    ///< the same for all activities, copies too
  int64_t copies = 0;
  double copy_us = 0.0;    ///< with nothing else running
  double behind_us = 0.0;  ///< idle behind a copy until the next launch: the host waited for the copy

  double step_us() const { return std::max(kernels_us, lines_us); }
  /// The share of the traced steps' time in which a copy kept the device from its work.
  double copy_share() const { return step_us() > 0.0 ? (copy_us + behind_us) / step_us() : 0.0; }
};

/// The counters' view of an op's reads, over windows.
struct CountedReads {
  double measured_bytes = 0.0;
  double counted_bytes = 0.0;
  double l2_hit = 0.0;  ///< weighted by `us`
  double us = 0.0;
};

/// Everything that findings rest on, summed as the lines of a profile come. Memory does not grow with the number of steps.
class Evidence final : public ProfileVisitor {
 public:
  void header(ProfileHeader header) override;
  void launch(KernelLaunch launch) override { launches.push_back(std::move(launch)); }
  void step(StepSummary& step) override { add(step); }
  void add(const StepSummary& step);
  /// With several ranks, only the first rank's kernels and counters count, as for its ops.
  void traced_step(const StepKernels& step) override;
  void kernel(KernelLine kernel) override;
  void counters(CounterWindow window) override;
  void request(EndedRequest request) override;
  void rank_step(const RankStep& step) override { rank_sum_.add(step); }
  void host(const HostSample& sample) override { host_.add(sample); }
  void device(const DeviceSample& sample) override {
    if ((sample.clock_reasons & clock_reason::idle) == 0) devices_[sample.device].add(sample);
  }
  void trial(KeptTrial trial) override {
    std::erase_if(trials, [&](const KeptTrial& older) { return older.is_of_same(trial); });
    trials.push_back(std::move(trial));
  }

  const ProfileHeader& header() const { return header_; }
  /// An option of the header as a number; `otherwise` if the option is not there.
  int64_t option(std::string_view name, int64_t otherwise = 0) const;
  bool flag(std::string_view name, bool otherwise) const;
  std::string_view text(std::string_view name) const;  ///< empty: no such option
  std::vector<OpEvidence> ops() const;                 ///< most time first
  /// The report on ranks; it is empty with one rank.
  RankReport ranks() const { return rank_sum_.result(); }
  /// The host's samples during the steps, as one. A sample without threads says nothing about threads.
  HostSample host() const;
  /// The samples of the devices while they worked during the steps, by rank, in the order of time.
  std::map<int32_t, std::vector<DeviceSample>> devices() const;
  /// The extra time of decode steps' ops, compared with the fastest step of as many sequences (as a ratio to the roofline).
  double disturbed_us() const;

  // Set by the functions above; everyone else reads them.
  bool on_device = false;
  std::vector<KernelLaunch> launches;
  StepEvidence steps;
  RequestEvidence requests;
  RangeEvidence traced;
  std::map<std::string, CountedReads> reads;  ///< by op
  std::unordered_map<uint64_t, KindTimes> kinds;
  SameWork same_work;
  DraftEvidence drafts;
  std::vector<KeptTrial> trials;  ///< the newest of each kind

 private:
  /// Decode steps of as many sequences.
  struct AlikeSteps {
    double us = 0.0, floor_us = 0.0, steps = 0.0;
    double least = 0.0;  ///< of a step: its time over the roofline's time
  };
  static constexpr size_t kMostPrefixes = 1u << 17, kMostKinds = 1024;

  bool add_gap(const StepSummary& step);
  uint32_t conditions_of(const StepSummary& step, bool is_after_pause);
  void add_uneven(const StepSummary& step, double attention_us);
  void add_load(const StepSummary& step);
  OpEvidence& evidence_of(const OpSummary& op, size_t place);
  double add_ops(const StepSummary& step);
  void add_eager(const StepSummary& step);
  bool add_kind(const StepSummary& step);
  void add_alike(const StepSummary& step);
  void add_prefixes(const EndedRequest& request);

  ProfileHeader header_;
  int64_t max_num_seqs_ = 0, max_num_batched_tokens_ = 0;
  bool cuts_prompts_ = true;
  std::unordered_map<std::string, OpEvidence> known_ops_;  ///< without times
  std::map<std::pair<std::string, StepPhase>, OpEvidence> ops_;
  std::vector<OpEvidence*> by_place_;  ///< the last step's ops; mostly also the next step's
  RankReportSum rank_sum_;
  SampleEvidence<HostSample> host_;
  std::map<int32_t, SampleEvidence<DeviceSample>> devices_;
  std::map<int64_t, AlikeSteps> alike_;             ///< by sequences
  std::unordered_map<uint64_t, int64_t> prefixes_;  ///< when a prompt with the prefix gave its first token
  int64_t last_step_ = -1, first_start_ns_ = 0, last_end_ns_ = 0, first_ended_arrival_ns_ = 0;
  int32_t last_waiting_ = 0;
  bool last_was_copy_ = false, last_preempted_ = false;
};

}  // namespace minfer
