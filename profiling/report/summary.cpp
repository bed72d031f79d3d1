#include "profiling/report/summary.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace minfer {
namespace {

double us_of(int64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}

// The interval of each stamped op with a valid id, in the order they ran.
template <class Visit>
void for_each_interval(const StepStamps& stamps, size_t num_ops, Visit visit) {
  for (size_t i = 0; i < stamps.ops.size(); ++i) {
    const StepStamps::Stamp& stamp = stamps.ops[i];
    if (stamp.op < 0 || static_cast<size_t>(stamp.op) >= num_ops) continue;
    const int64_t end_ns = i + 1 < stamps.ops.size() ? stamps.ops[i + 1].begin_ns : stamps.end_ns;
    visit(stamp.op, us_of(std::max<int64_t>(0, end_ns - stamp.begin_ns)));
  }
}

StepSummary summarise_host(const StepRecord& record) {
  StepSummary summary;
  summary.step = record.step;
  summary.start_ns = record.start_ns;
  summary.wall_us = us_of(record.wall_ns());
  summary.batch = record.batch;
  for (size_t i = 0; i < kHostSpans; ++i)
    summary.host_us[i] = us_of(record.host_ns[i]);
  for (size_t i = 0; i < record.requests.size(); ++i)
    summary.requests.emplace_back(record.requests[i]);
  return summary;
}

}  // namespace

std::string_view name(Bound bound) {
  static constexpr std::array<std::string_view, 3> kNames{"unknown", "memory", "compute"};
  return kNames[static_cast<size_t>(bound)];
}

StepSummariser::StepSummariser(std::span<const OpInfo> ops, const Ceilings& ceilings, ProfileDetail detail)
    : ops_(ops.begin(), ops.end()), ceilings_(ceilings), detail_(detail), costs_(ops.size()) {
  for (const OpInfo& info : ops_) {
    const auto same = [&](const Group& group) {
      return group.name == info.name && group.scope == info.scope;
    };
    const auto found = std::ranges::find_if(groups_, same);
    group_of_.push_back(static_cast<int32_t>(found - groups_.begin()));
    if (found == groups_.end()) groups_.push_back({info.name, info.scope});
  }
}

void StepSummariser::observe(const StepRecord& record) {
  const BatchShape& shape = record.batch.shape;
  if (record.batch.phase() != StepPhase::decode) return;
  for_each_interval(record.stamps, ops_.size(), [&](OpId op, double us) {
    costs_.observe(op, phase_tokens(ops_[static_cast<size_t>(op)].scope, shape).decode, us);
  });
}

StepSummary StepSummariser::summarise(const StepRecord& record) {
  observe(record);
  StepSummary summary = summarise_host(record);
  const BatchShape& shape = record.batch.shape;
  summary.prefill.tokens = shape.prefill_tokens;
  summary.decode.tokens = shape.decode_tokens;
  std::vector<int32_t> rows(groups_.size(), -1);
  std::vector<char> seen(ops_.size(), 0);
  for_each_interval(record.stamps, ops_.size(), [&](OpId op, double us) {
    const bool first = std::exchange(seen[static_cast<size_t>(op)], 1) == 0;
    add_op(summary, rows, op, us, shape, first);
  });
  summary.gpu_idle_us = std::max(0.0, summary.wall_us - summary.gpu_us);
  // The host spans of a queued step ran while the device was at the step before it.
  const double host_us =
      record.queued ? 0.0 : std::accumulate(summary.host_us.begin(), summary.host_us.end(), 0.0);
  const double covered = host_us + summary.gpu_us;
  if (summary.wall_us > 0.0) summary.attributed = std::min(1.0, covered / summary.wall_us);
  return summary;
}

StepPhase StepSummariser::op_phase(TokenScope scope, const BatchShape& shape) const {
  const PhaseTokens tokens = phase_tokens(scope, shape);
  if (tokens.prefill == 0) return StepPhase::decode;
  return tokens.decode == 0 ? StepPhase::prefill : StepPhase::mixed;
}

// `rows`: by group, the index of its OpSummary; -1 until it has one. An op may run in several slices of the
// step's rows: together they are the op's work, so it is counted with the `first` of them.
void StepSummariser::add_op(StepSummary& summary, std::vector<int32_t>& rows, OpId op, double us,
                            const BatchShape& shape, bool first) const {
  const OpInfo& info = ops_[static_cast<size_t>(op)];
  const auto group = static_cast<size_t>(group_of_[static_cast<size_t>(op)]);
  if (rows[group] < 0) {
    rows[group] = static_cast<int32_t>(summary.ops.size());
    OpSummary& added = summary.ops.emplace_back();
    added.op = info.name;
    added.phase = op_phase(info.scope, shape);
  }
  OpSummary& sum = summary.ops[static_cast<size_t>(rows[group])];
  const KernelWork work = first ? op_work(info, shape) : KernelWork{};
  ++sum.calls;
  sum.us += us;
  sum.bytes += work.bytes();
  sum.flops += work.flops;
  sum.floor_us += ceilings_.floor_us(work.bytes(), work.flops);
  if (ceilings_.known())
    sum.bound = ceilings_.compute_bound(sum.bytes, sum.flops) ? Bound::compute : Bound::memory;
  if (detail_ == ProfileDetail::layer) summary.layers.push_back({info.layer, info.name, sum.phase, us});

  const double decode_us = decode_share_us(op, info, us, shape, ceilings_, costs_);
  summary.gpu_us += us;
  summary.decode.us += decode_us;
  summary.prefill.us += us - decode_us;
}

}  // namespace minfer
