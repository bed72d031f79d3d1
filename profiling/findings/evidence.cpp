#include "profiling/findings/evidence.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <utility>

namespace minfer {
namespace {

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

void Evidence::header(ProfileHeader header) {
  header_ = std::move(header);
  max_num_seqs_ = option("max_num_seqs");
  max_num_batched_tokens_ = option("max_num_batched_tokens");
  cuts_prompts_ = flag("enable_chunked_prefill", true);
  same_work = SameWork(header_.ceilings);
  drafts = DraftEvidence(header_.ceilings);
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

std::string_view Evidence::text(std::string_view name) const {
  const auto found = std::ranges::find(header_.options, name, &std::pair<std::string, std::string>::first);
  return found == header_.options.end() ? std::string_view() : found->second;
}

int64_t Evidence::option(std::string_view name, int64_t otherwise) const {
  const std::string_view value = text(name);
  // No option that rules look at is larger, and twice it, or it by the threads, still fits.
  constexpr int64_t kMost = int64_t{1} << 31;
  int64_t number = 0;
  const char* const end = value.data() + value.size();
  const bool is_number = !value.empty() && std::from_chars(value.data(), end, number).ptr == end;
  return is_number ? std::clamp(number, -kMost, kMost) : otherwise;
}

bool Evidence::flag(std::string_view name, bool otherwise) const {
  const std::string_view value = text(name);
  return value.empty() ? otherwise : value == "true";
}

void Evidence::add(const StepSummary& step) {
  on_device = on_device || step.on_device;
  const bool is_after_pause = add_gap(step);
  PhaseEvidence& phase = steps.by_phase[static_cast<size_t>(step.phase())];
  ++phase.steps;
  phase.wall_us += step.wall_us;
  phase.ops_us += step.gpu_us;
  phase.exposed_us += step.exposed_us();
  steps.kept_waiting_us += step.gpu_idle_us - step.exposed_us();
  phase.prefill_tokens += step.batch.shape.prefill_tokens;
  phase.decode_tokens += step.batch.shape.decode_tokens;
  phase.decode_sequences += step.batch.shape.decode_sequences;
  phase.wall_by_tokens.add(step.batch.shape.tokens(), step.wall_us);
  steps.wall_us += step.wall_us;
  for (size_t span = 0; span < kHostSpans; ++span)
    steps.host_us[span] += step.host_us[span];
  steps.prefill_us += step.prefill.us;
  steps.wall_by_tokens.add(step.batch.shape.tokens(), step.wall_us);
  steps.idle_host_us += step.idle_host_us;
  steps.late_ops += step.late_ops;
  steps.preempted += step.batch.preempted;
  steps.constrained_rows += step.batch.constrained_rows;
  add_load(step);
  drafts.add(step);
  add_uneven(step, add_ops(step));
  const uint32_t conditions = conditions_of(step, is_after_pause);
  if (!add_kind(step)) same_work.add(step, conditions);  // the first of a kind: see cold start
  add_alike(step);
}

/// Adds the time between steps. If a request decodes or waits, there was work during the gap. Returns true for a pause without work.
bool Evidence::add_gap(const StepSummary& step) {
  bool is_pause = false;
  const double gap_us = static_cast<double>(step.start_ns - last_end_ns_) * 1e-3;
  if (last_step_ >= 0 && step.step == last_step_ + 1 && gap_us > 0.0) {
    if (step.batch.shape.decode_sequences > 0 || last_waiting_ > 0) {
      steps.bubble.add(gap_us);
      steps.wall_us += gap_us;
    } else {
      steps.idle_us += gap_us;
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
    if (const int32_t launch = main_launch(op, launches); launch >= 0) sum.launches[launch] += op.us;
    if (sum.kind == OpKind::attention && op.phase == StepPhase::decode) attention_us += op.us;
  }
  return attention_us;
}

/// Returns true for the first step of its kind.
bool Evidence::add_kind(const StepSummary& step) {
  const auto prompt = static_cast<uint32_t>(step.batch.shape.prefill_tokens);
  const uint64_t key = uint64_t(step.phase()) << 40 | uint64_t(std::bit_width(prompt)) << 32 |
                       static_cast<uint32_t>(step.batch.graph_batch);
  if (kinds.size() >= kMostKinds && !kinds.contains(key)) return false;
  const auto [kind, is_new] = kinds.try_emplace(key);
  if (is_new) {
    kind->second.first_us = step.wall_us;
  } else {
    kind->second.later.add(step.wall_us);
  }
  return is_new;
}

void Evidence::add_alike(const StepSummary& step) {
  if (step.phase() != StepPhase::decode) return;
  double floor_us = 0.0;
  for (const OpSummary& op : step.ops)
    floor_us += op.floor_us;
  const int64_t sequences = step.batch.shape.decode_sequences;
  if (floor_us <= 0.0 || (alike_.size() >= kMostKinds && !alike_.contains(sequences))) return;
  AlikeSteps& sum = alike_[sequences];
  const double ratio = step.gpu_us / floor_us;
  sum.least = sum.steps > 0.0 ? std::min(sum.least, ratio) : ratio;
  sum.us += step.gpu_us;
  sum.floor_us += floor_us;
  sum.steps += 1.0;
}

void Evidence::request(EndedRequest request) {
  ++requests.requests;
  requests.queue_us += us_of(request.queue_ns());
  requests.prefill_us += us_of(request.prefill_ns());
  requests.decode_us += us_of(request.decode_ns());
  requests.prompt_tokens += request.prompt_tokens;
  requests.cached_tokens += request.cached_tokens;
  requests.recomputed_tokens += request.recomputed_tokens;
  requests.preempted_requests += request.preemptions > 0;
  requests.stream_interval += request.stream_interval;
  if (request.client_wait_ns >= 0) {
    const int64_t after_ns = std::max<int64_t>(0, request.client_wait_after_ns);
    requests.client_wait_us += us_of(request.client_wait_ns) + us_of(after_ns);
    requests.waited_for_us += us_of(request.end_ns - request.arrival_ns) + us_of(after_ns);
  }
  requests.first_arrival_ns =
      requests.requests == 1 ? request.arrival_ns : std::min(requests.first_arrival_ns, request.arrival_ns);
  if (requests.requests == 1) first_ended_arrival_ns_ = request.arrival_ns;
  requests.wait_by_arrival.add(1e-6 * us_of(request.arrival_ns - first_ended_arrival_ns_),
                               1e-6 * us_of(request.queue_ns() + request.prefill_ns()));
  requests.last_arrival_ns = std::max(requests.last_arrival_ns, request.arrival_ns);
  requests.last_end_ns = std::max(requests.last_end_ns, request.end_ns);
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
  requests.missed_tokens += missed;
  ++requests.missed_requests;
}

void Evidence::traced_step(const StepKernels& step) {
  if (step.rank != 0) return;
  ++traced.steps;
  traced.kernels_us += step.busy_us + step.idle_us;
}

void Evidence::kernel(KernelLine kernel) {
  if (kernel.rank != 0) return;
  traced.lines_us += kernel.own_us + kernel.gap_us;
  if (last_was_copy_ && kernel.gap_cause == GapCause::host) traced.behind_us += kernel.gap_us;
  last_was_copy_ = kernel.kind == ActivityKind::memcpy;
  if (!last_was_copy_) return;
  ++traced.copies;
  traced.copy_us += kernel.own_us;
}

void Evidence::counters(CounterWindow window) {
  if (window.rank != 0) return;
  for (const CounterWork& work : window.work) {
    for (const CounterOp& op : work.ops) {
      if (!op.measured.has(Counter::dram_read_bytes)) continue;
      const auto times = static_cast<double>(work.steps);
      CountedReads& sum = reads[op.op];
      sum.measured_bytes += times * op.measured[Counter::dram_read_bytes];
      sum.counted_bytes += times * op.counted_read_bytes;
      sum.us += times * op.us;
      if (op.measured.has(Counter::l2_hit)) sum.l2_hit += times * op.us * op.measured[Counter::l2_hit];
    }
  }
}

double Evidence::disturbed_us() const {
  constexpr double kEnoughSteps = 12.0;
  double us = 0.0;
  for (const auto& [sequences, sum] : alike_) {
    if (sum.steps >= kEnoughSteps) us += sum.us - sum.least * sum.floor_us;
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
