#include "profiling/summary/summary.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace minfer {
namespace {

StepSummary summarise_host(const StepRecord& record) {
  StepSummary summary;
  summary.step = record.step;
  summary.start_ns = record.start_ns;
  summary.wall_us = us_of(record.wall_ns());
  summary.batch = record.batch;
  summary.on_device = record.on_device;
  for (size_t i = 0; i < kHostSpans; ++i)
    summary.host_us[i] = us_of(record.host_ns[i]);
  for (size_t i = 0; i < record.requests.size(); ++i)
    summary.requests.emplace_back(record.requests[i]);
  summary.served = record.served;
  return summary;
}

bool beats_roofline(const OpSummary& op, bool on_device) {
  constexpr double kLeastUs = 1'000.0, kLeastRatio = 1.05;  // what clocks and rounds of measuring leave open
  constexpr int64_t kMoreThanCaches = int64_t{2} << 30;     // of any processor
  if (op.us < kLeastUs || op.roofline() < kLeastRatio) return false;
  return op.bound == Bound::compute || (!on_device && op.bytes > kMoreThanCaches);
}

}  // namespace

std::string_view name(Bound bound) {
  static constexpr std::array<std::string_view, 3> kNames{"unknown", "memory", "compute"};
  return kNames[static_cast<size_t>(bound)];
}

double StepSummary::exposed_us() const {
  const double not_ready_us = std::max(0.0, gpu_idle_us - idle_device_us);
  // A host that waits for the device has launched what it is to do.
  const double busy_us = wall_us - host_us[static_cast<size_t>(HostSpan::wait)];
  return on_device ? std::min(not_ready_us, std::max(0.0, busy_us)) : not_ready_us;
}

double StepSummary::best_attributed() const {
  if (!has_kernels() || wall_us <= 0.0) return attributed;
  return std::min(1.0, kernels->attributed_us / wall_us);
}

bool StepFilter::takes(const StepSummary& step) const {
  if (phase && step.phase() != *phase) return false;
  if (steps && (step.step < steps->first || step.step > steps->second)) return false;
  return request.empty() || std::ranges::find(step.requests, request) != step.requests.end();
}

std::string StepFilter::text() const {
  std::string text = phase ? fmt::format("{} steps", name(*phase)) : "steps";
  if (steps) text += fmt::format(" from {} to {}", steps->first, steps->second);
  if (!request.empty()) text += fmt::format(" of request {}", request);
  return text;
}

StepSummariser::StepSummariser(std::span<const OpInfo> ops, const Ceilings& ceilings, ProfileDetail detail)
    : ops_(ops.begin(), ops.end()), ceilings_(ceilings), detail_(detail), costs_(ops.size()) {
  for (const OpInfo& info : ops_) {
    const auto same = [&](const Group& group) {
      return group.name == info.name && group.scope == info.scope;
    };
    const auto found = std::ranges::find_if(groups_, same);
    const auto place = static_cast<size_t>(found - groups_.begin());
    group_of_.push_back(static_cast<int32_t>(place));
    if (found == groups_.end()) groups_.push_back({info.name, info.scope});
    groups_[place].ops += 1.0;
    groups_[place].units.fp8 += units_of(info).fp8;
    groups_[place].units.vectors += units_of(info).vectors;
  }
}

void StepSummariser::observe(const StepRecord& record) {
  const std::span<const BusyOp> busy = idle_.find(record.stamps);
  if (record.batch.phase() != StepPhase::decode) return;
  for (size_t i = 0; i < busy.size(); ++i) {
    const OpId op = record.stamps.ops[i].op;
    if (!is_known(op)) continue;
    const TokenScope scope = ops_[static_cast<size_t>(op)].scope;
    costs_.observe(op, phase_tokens(scope, record.batch.shape).decode, us_of(busy[i].busy_ns));
  }
}

StepSummary StepSummariser::summarise(const StepRecord& record) {
  observe(record);
  StepSummary summary = summarise_host(record);
  const BatchShape& shape = record.batch.shape;
  summary.prefill.tokens = shape.prefill_tokens;
  summary.decode.tokens = shape.decode_tokens;
  summary.idle_source = idle_.source();
  std::vector<int32_t> rows(groups_.size(), -1);
  std::vector<char> seen(ops_.size(), 0);
  std::span<const int32_t> launches = record.stamps.launches;
  for (size_t i = 0; i < record.stamps.ops.size(); ++i) {
    const StepStamps::Stamp& stamp = record.stamps.ops[i];
    OpRun run{stamp.op, idle_.last()[i], StepStamps::take_launches(stamp, launches), stamp.experts_read,
              stamp.waited_ns};
    summary.late_ops += run.busy.is_late ? 1 : 0;
    summary.idle_host_us += us_of(run.busy.idle_host_ns);
    summary.idle_device_us += us_of(run.busy.idle_device_ns);
    if (!is_known(stamp.op)) continue;
    run.first = std::exchange(seen[static_cast<size_t>(stamp.op)], 1) == 0;
    add_op(summary, rows, run, shape);
  }
  const auto beats = [&](const OpSummary& op) { return beats_roofline(op, summary.on_device); };
  beating_steps_ += std::ranges::any_of(summary.ops, beats) ? 1 : 0;
  summary.gpu_idle_us = std::max(0.0, summary.wall_us - summary.gpu_us);
  const double host_us =
      record.on_device ? 0.0 : std::accumulate(summary.host_us.begin(), summary.host_us.end(), 0.0);
  const double covered = host_us + summary.gpu_us;
  if (summary.wall_us > 0.0) summary.attributed = std::min(1.0, covered / summary.wall_us);
  return summary;
}

// `rows`: by group, the index of its OpSummary; -1 until it has one.
OpSummary& StepSummariser::summary_of(StepSummary& summary, std::vector<int32_t>& rows, OpId op,
                                      const BatchShape& shape) const {
  const auto group = static_cast<size_t>(group_of_[static_cast<size_t>(op)]);
  if (rows[group] < 0) {
    rows[group] = static_cast<int32_t>(summary.ops.size());
    const OpInfo& info = ops_[static_cast<size_t>(op)];
    OpSummary& added = summary.ops.emplace_back();
    added.op = info.name;
    added.phase = op_phase(info.scope, shape);
  }
  return summary.ops[static_cast<size_t>(rows[group])];
}

// An op may run in several slices of the step's rows: together they are the op's work, so it is counted with the first of them.
void StepSummariser::add_op(StepSummary& summary, std::vector<int32_t>& rows, const OpRun& run,
                            const BatchShape& shape) const {
  const OpInfo& info = ops_[static_cast<size_t>(run.op)];
  const double us = us_of(run.busy.busy_ns);
  const KernelWork work = run.first ? op_work(info, shape, run.experts_read) : KernelWork{};
  OpSummary& sum = summary_of(summary, rows, run.op, shape);
  if (run.experts_read >= 0 && (sum.calls == 0 || sum.experts_read >= 0)) {
    sum.experts_read = std::max<int64_t>(sum.experts_read, 0) + run.experts_read;
  } else {
    sum.experts_read = -1;
  }
  ++sum.calls;
  sum.us += us;
  sum.idle_us += us_of(run.busy.idle_ns());
  sum.waited_us += std::min(us, us_of(run.waited_ns));
  sum.bytes += work.bytes();
  sum.link_bytes += work.link_bytes;
  sum.flops += work.flops;
  sum.floor_us += ceilings_.floor_us(work.bytes(), work.flops, units_of(info));
  if (ceilings_.known()) {
    const Group& group = groups_[static_cast<size_t>(group_of_[static_cast<size_t>(run.op)])];
    sum.bound =
        ceilings_.compute_bound(sum.bytes, sum.flops, group.shares()) ? Bound::compute : Bound::memory;
  }
  for (const int32_t launch : run.launches) {
    if (launch >= 0 && std::ranges::find(sum.launches, launch) == sum.launches.end())
      sum.launches.push_back(launch);
  }
  if (detail_ == ProfileDetail::layer) summary.layers.push_back({info.layer, info.name, sum.phase, us});

  const double decode_us = decode_share_us(run.op, info, us, shape, ceilings_, costs_, run.experts_read);
  summary.gpu_us += us;
  summary.decode.us += decode_us;
  summary.prefill.us += us - decode_us;
}

}  // namespace minfer
