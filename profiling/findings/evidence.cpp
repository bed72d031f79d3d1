#include "profiling/findings/evidence.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

namespace minfer {
namespace {

template <class Sum>
auto total(const StepEvidence& steps, Sum PhaseEvidence::*field) {
  return std::accumulate(steps.by_phase.begin(), steps.by_phase.end(), Sum{},
                         [&](Sum sum, const PhaseEvidence& phase) { return sum + phase.*field; });
}

/// A launch's use of multiprocessors (registers and shared memory), if all its blocks ran at once.
double on_chip_bytes(const KernelLaunch& launch) {
  const double registers = 1.0 * launch.registers * sizeof(int32_t) * launch.num_threads();
  return static_cast<double>(launch.num_blocks()) *
         (registers + launch.static_shared_bytes + launch.dynamic_shared_bytes);
}

/// The op's launch that uses most of the device; kernels that prepare or add up are small beside it. -1: none is known.
int32_t main_launch(const OpSummary& op, const std::vector<KernelLaunch>& launches) {
  int32_t chosen = -1;
  for (const int32_t launch : op.launches) {
    if (launch < 0 || static_cast<size_t>(launch) >= launches.size()) continue;
    const KernelLaunch& candidate = launches[static_cast<size_t>(launch)];
    if (candidate.path == "stamp") continue;
    if (chosen < 0 || on_chip_bytes(candidate) > on_chip_bytes(launches[static_cast<size_t>(chosen)]))
      chosen = launch;
  }
  return chosen;
}

}  // namespace

int64_t StepEvidence::steps() const {
  return total(*this, &PhaseEvidence::steps);
}
double StepEvidence::ops_us() const {
  return total(*this, &PhaseEvidence::ops_us);
}
double StepEvidence::exposed_us() const {
  return total(*this, &PhaseEvidence::exposed_us);
}
int64_t StepEvidence::prefill_tokens() const {
  return total(*this, &PhaseEvidence::prefill_tokens);
}
int64_t StepEvidence::decode_tokens() const {
  return total(*this, &PhaseEvidence::decode_tokens);
}

Evidence::Evidence(const ProfileHeader& header)
    : header_(header),
      max_num_seqs_(option("max_num_seqs")),
      max_num_batched_tokens_(option("max_num_batched_tokens")),
      cuts_prompts_(flag("enable_chunked_prefill", true)),
      same_work_(header_.ceilings),
      drafts_(header_.ceilings) {
  rank_sum_.set_header(header_);
  std::unordered_map<std::string, int64_t> layers;
  for (const OpInfo& op : header_.ops) {
    OpEvidence& known = known_ops_[op.name];
    const auto count = static_cast<double>(++layers[op.name]);
    known.op = op.name;
    known.kind = op.kind;
    const bool is_pair = op.kind == OpKind::gate_up_swiglu || op.kind == OpKind::moe_gate_up_swiglu;
    const double weights =
        (is_pair ? 2.0 : 1.0) * static_cast<double>(op.in_features) * static_cast<double>(op.out_features);
    known.weights += (weights - known.weights) / count;
    known.weight_bytes += (static_cast<double>(op.weight_bytes) - known.weight_bytes) / count;
    known.units.fp8 += (units_of(op).fp8 - known.units.fp8) / count;
    known.units.vectors += (units_of(op).vectors - known.units.vectors) / count;
  }
}

int64_t Evidence::option(std::string_view name, int64_t otherwise) const {
  const auto found = std::ranges::find(header_.options, name, &std::pair<std::string, std::string>::first);
  if (found == header_.options.end()) return otherwise;
  // No option that rules look at is larger, and twice it, or it by the threads, still fits.
  constexpr int64_t kMost = int64_t{1} << 31;
  int64_t number = 0;
  const char* const end = found->second.data() + found->second.size();
  const bool is_number = std::from_chars(found->second.data(), end, number).ptr == end;
  return is_number ? std::clamp(number, -kMost, kMost) : otherwise;
}

bool Evidence::flag(std::string_view name, bool otherwise) const {
  const auto found = std::ranges::find(header_.options, name, &std::pair<std::string, std::string>::first);
  return found == header_.options.end() ? otherwise : found->second == "true";
}

std::string_view Evidence::text(std::string_view name) const {
  const auto found = std::ranges::find(header_.options, name, &std::pair<std::string, std::string>::first);
  return found == header_.options.end() ? std::string_view() : found->second;
}

void Evidence::add(const StepSummary& step) {
  on_device_ = on_device_ || step.on_device;
  const bool is_after_pause = add_gap(step);
  PhaseEvidence& phase = steps_.by_phase[static_cast<size_t>(step.phase())];
  ++phase.steps;
  phase.wall_us += step.wall_us;
  phase.ops_us += step.gpu_us;
  phase.exposed_us += step.exposed_us();
  steps_.kept_waiting_us += step.gpu_idle_us - step.exposed_us();
  phase.prefill_tokens += step.batch.shape.prefill_tokens;
  phase.decode_tokens += step.batch.shape.decode_tokens;
  phase.decode_sequences += step.batch.shape.decode_sequences;
  phase.wall_by_tokens.add(step.batch.shape.tokens(), step.wall_us);
  steps_.wall_us += step.wall_us;
  for (size_t span = 0; span < kHostSpans; ++span)
    steps_.host_us[span] += step.host_us[span];
  steps_.prefill_us += step.prefill.us;
  steps_.wall_by_tokens.add(step.batch.shape.tokens(), step.wall_us);
  steps_.idle_host_us += step.idle_host_us;
  steps_.late_ops += step.late_ops;
  steps_.preempted += step.batch.preempted;
  steps_.constrained_rows += step.batch.constrained_rows;
  steps_.prefix_hit_tokens += step.batch.prefix_hit_tokens;
  steps_.dropped = step.dropped;
  add_load(step);
  drafts_.add(step);
  add_uneven(step, add_ops(step));
  const uint32_t conditions = conditions_of(step, is_after_pause);
  if (!add_kind(step)) same_work_.add(step, conditions);  // the first of a kind: see cold start
  add_slice(step);
}

/// Adds the time between steps. If a request decodes or waits, there was work during the gap. Returns true for a pause without work.
bool Evidence::add_gap(const StepSummary& step) {
  bool is_pause = false;
  const double gap_us = static_cast<double>(step.start_ns - last_end_ns_) * 1e-3;
  if (last_step_ >= 0 && step.step == last_step_ + 1 && gap_us > 0.0) {
    if (step.batch.shape.decode_sequences > 0 || last_waiting_ > 0) {
      steps_.bubble.add(gap_us);
      steps_.wall_us += gap_us;
    } else {
      steps_.idle_us += gap_us;
      is_pause = gap_us >= kPauseUs;
    }
  }
  if (last_step_ < 0) first_start_ns_ = step.start_ns;
  last_step_ = step.step;
  last_waiting_ = step.batch.waiting;
  last_end_ns_ = step.start_ns + static_cast<int64_t>(step.wall_us * 1e3);
  return is_pause;
}

OpEvidence& Evidence::evidence_of(const OpSummary& op, size_t place) {
  if (place >= by_place_.size()) by_place_.resize(place + 1, nullptr);
  OpEvidence*& sum = by_place_[place];
  if (sum != nullptr && sum->phase == op.phase && sum->op == op.op) return *sum;
  sum = &ops_[{op.op, op.phase}];
  if (sum->calls == 0) {
    if (const auto found = known_ops_.find(op.op); found != known_ops_.end()) *sum = found->second;
    sum->op = op.op;
    sum->phase = op.phase;
  }
  return *sum;
}

/// The time of decoding's attention.
double Evidence::add_ops(const StepSummary& step) {
  double attention_us = 0.0;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    const OpSummary& op = step.ops[i];
    OpEvidence& sum = evidence_of(op, i);
    sum.calls += op.calls;
    sum.us += op.us;
    sum.floor_us += op.floor_us;
    if (op.bound == Bound::memory) sum.memory_us += op.us;
    sum.bytes += static_cast<double>(op.bytes);
    sum.flops += static_cast<double>(op.flops);
    if (const int32_t launch = main_launch(op, launches_); launch >= 0) sum.launches[launch] += op.us;
    if (sum.kind == OpKind::attention && op.phase == StepPhase::decode) attention_us += op.us;
  }
  return attention_us;
}

/// Returns true for the first step of its kind.
bool Evidence::add_kind(const StepSummary& step) {
  const auto prompt = static_cast<uint32_t>(step.batch.shape.prefill_tokens);
  const uint64_t key = uint64_t(step.phase()) << 40 | uint64_t(std::bit_width(prompt)) << 32 |
                       static_cast<uint32_t>(step.batch.graph_batch);
  if (kinds_.size() >= kMostKinds && !kinds_.contains(key)) return false;
  const auto [kind, is_new] = kinds_.try_emplace(key);
  if (is_new) {
    kind->second.first_us = step.wall_us;
  } else {
    kind->second.later.add(step.wall_us);
  }
  return is_new;
}

/// Slices of equally many decode steps; when there are too many, every two become one.
void Evidence::add_slice(const StepSummary& step) {
  if (step.phase() != StepPhase::decode) return;
  Slice sum{.us = step.gpu_us,
            .floor_us = 0.0,
            .sequences = static_cast<double>(step.batch.shape.decode_sequences)};
  for (const OpSummary& op : step.ops)
    sum.floor_us += op.floor_us;
  if (sum.floor_us <= 0.0) return;
  sum.least = sum.us / sum.floor_us;
  if (const int64_t sequences = step.batch.shape.decode_sequences;
      alike_.size() < kMostKinds || alike_.contains(sequences)) {
    const auto [alike, is_new] = alike_.try_emplace(sequences, sum);
    if (!is_new) alike->second.add(sum);
  }
  if (!slices_.empty() && slices_.back().steps < steps_of_slice_) return slices_.back().add(sum);
  if (slices_.size() == kSlices) {
    for (size_t i = 0; i < kSlices / 2; ++i) {
      slices_[i] = slices_[2 * i];
      slices_[i].add(slices_[2 * i + 1]);
    }
    slices_.resize(kSlices / 2);
    steps_of_slice_ *= 2.0;
  }
  slices_.push_back(sum);
}

void Evidence::add(const EndedRequest& request) {
  ++requests_.requests;
  const auto us = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  requests_.queue_us += us(request.queue_ns());
  requests_.prefill_us += us(request.prefill_ns());
  requests_.decode_us += us(request.decode_ns());
  requests_.prompt_tokens += request.prompt_tokens;
  requests_.cached_tokens += request.cached_tokens;
  requests_.recomputed_tokens += request.recomputed_tokens;
  requests_.output_tokens += request.output_tokens;
  requests_.preempted_requests += request.preemptions > 0;
  requests_.stream_interval += request.stream_interval;
  if (request.client_wait_ns >= 0) {
    const int64_t after_ns = std::max<int64_t>(0, request.client_wait_after_ns);
    requests_.client_wait_us += us(request.client_wait_ns) + us(after_ns);
    requests_.waited_for_us += us(request.end_ns - request.arrival_ns) + us(after_ns);
  }
  requests_.first_arrival_ns =
      requests_.requests == 1 ? request.arrival_ns : std::min(requests_.first_arrival_ns, request.arrival_ns);
  if (requests_.requests == 1) first_ended_arrival_ns_ = request.arrival_ns;
  requests_.wait_by_arrival.add(1e-6 * us(request.arrival_ns - first_ended_arrival_ns_),
                                1e-6 * us(request.queue_ns() + request.prefill_ns()));
  requests_.last_arrival_ns = std::max(requests_.last_arrival_ns, request.arrival_ns);
  requests_.last_end_ns = std::max(requests_.last_end_ns, request.end_ns);
  add_prefixes(request);
}

double RequestEvidence::outpaced() const {
  constexpr int64_t kEnoughRequests = 16;  // requests
  constexpr double kSteady = 0.8;          // correlation of a wait that grows
  constexpr double kLeastGrowth = 0.05;    // seconds for each second
  constexpr double kBatch = 0.1;           // of the time: a batch, which waits for itself
  const LineFit& wait = wait_by_arrival;
  const bool grows =
      wait.count() >= kEnoughRequests && wait.correlation() >= kSteady && wait.each() >= kLeastGrowth;
  return grows && arriving_share() >= kBatch ? 1.0 + wait.each() : 0.0;
}

void Evidence::add_prefixes(const EndedRequest& request) {
  int64_t shared = 0;
  uint64_t level = 0;
  for (const uint32_t hash : request.prefixes()) {
    const uint64_t key = level << 32 | hash;
    const auto tokens = static_cast<int64_t>(EndedRequest::kShortestPrefix << level++);
    const auto found = prefixes_.find(key);
    if (found != prefixes_.end() && found->second <= request.first_scheduled_ns) shared = tokens;
    if (request.first_token_ns == 0) continue;
    if (found != prefixes_.end()) {
      found->second = std::min(found->second, request.first_token_ns);
    } else if (prefixes_.size() < kMostPrefixes) {
      prefixes_.emplace(key, request.first_token_ns);
    }
  }
  // The last token of a prompt is computed in any case.
  const int64_t missed = std::min<int64_t>(shared, request.prompt_tokens - 1) - request.cached_tokens;
  if (missed < static_cast<int64_t>(EndedRequest::kShortestPrefix) / 2) return;
  requests_.missed_tokens += missed;
  ++requests_.missed_requests;
}

void Evidence::add(const StepKernels& step) {
  ++range_.steps;
  range_.kernels_us += step.busy_us + step.idle_us;
}

void Evidence::add(const KernelLine& kernel) {
  range_.lines_us += kernel.own_us + kernel.gap_us;
  if (last_was_copy_ && kernel.gap_cause == GapCause::host) range_.behind_us += kernel.gap_us;
  last_was_copy_ = kernel.kind == ActivityKind::memcpy;
  if (!last_was_copy_) return;
  ++range_.copies;
  range_.copy_us += kernel.own_us;
}

void Evidence::add(const CounterWindow& window) {
  if (window.rank != 0) return;  // the rules look at the first rank's ops
  for (const CounterWork& work : window.work) {
    for (const CounterOp& op : work.ops) {
      if (!op.measured.has(Counter::dram_read_bytes)) continue;
      const auto steps = static_cast<double>(work.steps);
      CountedReads& sum = reads_[op.op];
      sum.measured_bytes += steps * op.measured[Counter::dram_read_bytes];
      sum.counted_bytes += steps * op.counted_read_bytes;
      sum.us += steps * op.us;
      if (op.measured.has(Counter::l2_hit)) sum.l2_hit += steps * op.us * op.measured[Counter::l2_hit];
    }
  }
}

double Evidence::disturbed_us() const {
  constexpr double kEnoughSteps = 12.0;
  double us = 0.0;
  for (const auto& [sequences, steps] : alike_) {
    if (steps.steps >= kEnoughSteps) us += steps.us - steps.least * steps.floor_us;
  }
  return us;
}

HostSample Evidence::host() const {
  HostSample sum;
  for (const HostSample& sample : host_.within(first_start_ns_, last_end_ns_))
    sum.add(sample);
  return sum;
}

std::map<int32_t, std::vector<DeviceSample>> Evidence::devices() const {
  std::map<int32_t, std::vector<DeviceSample>> devices;
  for (const auto& [device, samples] : devices_) {
    std::vector<DeviceSample> some = samples.within(first_start_ns_, last_end_ns_);
    if (!some.empty()) devices.emplace(device, std::move(some));
  }
  return devices;
}

std::vector<OpEvidence> Evidence::ops() const {
  std::vector<OpEvidence> ops;
  for (const auto& [key, op] : ops_)
    ops.push_back(op);
  std::ranges::stable_sort(ops, std::ranges::greater{}, &OpEvidence::us);
  return ops;
}

}  // namespace minfer
