#include <nlohmann/json.hpp>

#include "profiling/findings/findings_report.h"
#include "profiling/json/json_text.h"
#include "profiling/report/device/counters_report_json.h"
#include "profiling/report/device/read_ahead.h"
#include "profiling/report/report.h"

namespace minfer {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of(const Statistics& statistics) {
  return {{"mean", statistics.mean},
          {"median", statistics.median},
          {"min", statistics.min},
          {"max", statistics.max},
          {"sd", statistics.sd}};
}

OrderedJson json_of(const PredictionError& error) {
  if (error.steps == 0) return {};
  return {{"steps", error.steps}, {"longer", error.longer}, {"median", error.median}, {"p95", error.p95}};
}

OrderedJson json_of(const StepGroup& group) {
  OrderedJson host = OrderedJson::object();
  for (size_t i = 0; i < kHostSpans; ++i)
    host[std::string(name(static_cast<HostSpan>(i)))] = group.host_us[i];
  return {{"steps", group.steps},
          {"wall_us", group.wall_us},
          {"gpu_us", group.gpu_us},
          {"host_us", host},
          {"unattributed_us", group.other_us()},
          {"idle_us",
           {{"between_steps", group.between_steps_us()},
            {"host", group.idle_host_us},
            {"device", group.idle_device_us}}},
          {"late_ops", group.late_ops},
          {"prefill_tokens", group.prefill_tokens},
          {"decode_tokens", group.decode_tokens},
          {"tokens_per_s", group.tokens_per_s()},
          {"step_us", json_of(group.step_us)},
          {"prediction_error", json_of(group.prediction)}};
}

OrderedJson json_of(const PhaseAggregate& phase) {
  return {{"us", phase.us}, {"tokens", phase.tokens}};
}

OrderedJson launches_of(const OpAggregate& op) {
  OrderedJson launches = OrderedJson::array();
  for (const auto& [launch, steps] : op.launches)
    launches.push_back({{"launch", launch}, {"steps", steps}});
  return launches;
}

/// Causes that are known of more than 100 % of the roofline.
OrderedJson over_roofline_by(const OpAggregate& op, const ReportData& data) {
  OrderedJson causes = OrderedJson::array();
  const auto over = over_roofline(op, data.launches, data.header.cache_bytes);
  if (over && over->read_ahead) causes.push_back("read ahead");
  if (over && over->cache) causes.push_back("cache");
  return causes;
}

/// Written without a point or an exponent as long as it fits.
int64_t whole(double sum) {
  return static_cast<int64_t>(std::min(sum, 9e18));
}

OrderedJson ceilings_of(const Ceilings& ceilings) {
  OrderedJson json{{"read_gbps", ceilings.read_gbps}, {"gflops", ceilings.gflops}};
  for (const auto& [name, unit] : kUnitCeilings)
    json[name] = ceilings.*unit;
  return json;
}

OrderedJson json_of(const OpAggregate& op, const ReportData& data, double all_us) {
  return {{"op", op.op},
          {"us", op.us},
          {"time_share", all_us > 0.0 ? op.us / all_us : 0.0},
          {"calls", op.calls},
          {"call_us", json_of(op.call_us)},
          {"bytes", whole(op.bytes)},
          {"flops", whole(op.flops)},
          {"experts_a_call", op.calls_with_experts > 0 ? OrderedJson(op.mean_experts()) : OrderedJson()},
          {"gbps", op.gbps()},
          {"tflops", op.tflops()},
          {"roofline", op.roofline()},
          {"bound", name(op.bound)},
          {"units", unit_names(data.header, op.op)},
          {"above_roofline_us", op.bound == Bound::unknown ? 0.0 : op.above_floor_us()},
          {"over_roofline_by", over_roofline_by(op, data)},
          {"idle_us", op.idle_us},
          {"launches", launches_of(op)}};
}

/// Null without a traced range.
OrderedJson json_of(const LaunchQueue& queue) {
  if (queue.is_empty()) return {};
  OrderedJson json;
  for (const bool in_graph : {false, true}) {
    const LaunchDelays& delays = queue.delays(in_graph);
    json[in_graph ? "in_graph" : "by_itself"] = {{"kernels", delays.kernels},
                                                 {"mean_us", delays.mean_us()},
                                                 {"max_us", delays.max_us},
                                                 {"mean_depth", queue.mean_depth(in_graph)}};
  }
  return json;
}

OrderedJson features_of(const std::vector<StepFeature>& features) {
  OrderedJson list = OrderedJson::array();
  for (const StepFeature& feature : features)
    list.push_back({{"name", feature.name}, {"slowest", feature.slowest}, {"all", feature.all}});
  return list;
}

/// Null of nothing.
OrderedJson quantiles_of(const Distribution& values) {
  if (values.count() == 0) return {};
  return {{"p50", values.quantile(0.5)}, {"p99", values.quantile(0.99)}};
}

/// Null of one rank.
OrderedJson json_of(const RankReport& report) {
  if (report.ranks.empty()) return {};
  OrderedJson ranks = OrderedJson::array();
  for (const RankUse& rank : report.ranks) {
    ranks.push_back({{"rank", rank.rank},
                     {"steps", rank.steps},
                     {"computed_us", rank.computed_us},
                     {"exchange_us", rank.exchange_us},
                     {"waited_us", rank.waited_us},
                     {"begin_after_us", rank.begin_after_us},
                     {"end_after_us", rank.end_after_us},
                     {"host_us", quantiles_of(rank.host_us)},
                     {"idle_us", quantiles_of(rank.idle_us)}});
  }
  return {{"skew_us", report.skew_us}, {"exchange_share", report.exchange_share}, {"ranks", ranks}};
}

/// Null where too few steps were recorded.
OrderedJson json_of(const Outliers& outliers) {
  if (outliers.steps == 0) return {};
  return {{"steps", outliers.steps},
          {"from_us", outliers.from_us},
          {"share", outliers.share},
          {"times_us", features_of(outliers.times)},
          {"shapes", features_of(outliers.shapes)}};
}

/// A value that is not known is null.
OrderedJson json_of(const KernelLaunch& launch) {
  return {{"kernel", launch.kernel},
          {"path", launch.path},
          {"grid", launch.grid},
          {"block", launch.block},
          {"cluster", launch.cluster},
          {"registers", launch.registers},
          {"static_shared_bytes", launch.static_shared_bytes},
          {"dynamic_shared_bytes", launch.dynamic_shared_bytes},
          {"blocks_per_sm", launch.blocks_per_sm},
          {"limiter", name(launch.limiter)},
          {"occupancy", launch.occupancy},
          {"waves", launch.waves},
          {"reads_ahead_bytes", launch.reads_ahead_bytes}};
}

OrderedJson json_of(const Attribution& sum) {
  OrderedJson ops = OrderedJson::array();
  for (const OpDifference& op : sum.ops) {
    ops.push_back({{"op", op.op},
                   {"runs", op.runs},
                   {"stamped_us", op.stamped_us},
                   {"kernel_us", op.kernel_us},
                   {"own_us", op.own_us},
                   {"difference_us", op.difference_us},
                   {"own_difference_us", op.own_difference_us}});
  }
  return {{"steps", sum.steps},
          {"step_us", sum.step_us},
          {"difference", sum.difference()},
          {"own_difference", sum.own_difference()},
          {"ops", ops}};
}

OrderedJson json_of(const GapSum& sum) {
  return {{"gaps", sum.gaps}, {"us", sum.us}};
}

OrderedJson json_of(const RangeIdle& idle) {
  OrderedJson ops = OrderedJson::array();
  for (const OpGaps& op : idle.ops) {
    ops.push_back({{"op", op.op},
                   {"us", op.us()},
                   {"host", json_of(op.host)},
                   {"device", json_of(op.device)},
                   {"unknown", json_of(op.unknown)}});
  }
  return {{"start", json_of(idle.start)},
          {"host", json_of(idle.host)},
          {"device", json_of(idle.device)},
          {"unknown", json_of(idle.unknown)},
          {"ops", ops}};
}

OrderedJson json_of(const RangeLine& range) {
  OrderedJson strangers = OrderedJson::array();
  for (const Stranger& stranger : range.strangers) {
    strangers.push_back(
        {{"kernel", stranger.kernel}, {"unmatched", stranger.unmatched}, {"outside", stranger.outside}});
  }
  return {{"first_step", range.first_step},
          {"last_step", range.last_step},
          {"error", range.error},
          {"steps", range.steps},
          {"kernels", range.kernels},
          {"copies", range.copies},
          {"dropped", range.dropped},
          {"invalid", range.invalid},
          {"outside", range.outside},
          {"unmatched", range.unmatched},
          {"missing", range.missing},
          {"of_profiler", range.of_profiler},
          {"strangers", strangers},
          {"overhead_us", range.overhead_us},
          {"busy_us", range.busy_us},
          {"idle_us", range.idle_us},
          {"host_wait_us", range.host_wait_us},
          {"idle", json_of(range.idle)},
          {"attribution", json_of(range.attribution)}};
}

/// Ops of which the device has weights in another type than the data.
OrderedJson converted_ops(const ProfileHeader& header) {
  OrderedJson ops = OrderedJson::array();
  for (const OpInfo& op : header.ops) {
    if (op.file_bytes == 0) continue;
    ops.push_back({{"op", op.name},
                   {"layer", op.layer},
                   {"converted", op.converted},
                   {"file_bytes", op.file_bytes},
                   {"weight_bytes", op.weight_bytes}});
  }
  return ops;
}

OrderedJson slowest_of(const ReportData& data) {
  OrderedJson slowest = OrderedJson::array();
  for (const StepSummary& step : data.slowest) {
    slowest.push_back({{"step", step.step},
                       {"phase", name(step.phase())},
                       {"wall_us", step.wall_us},
                       {"gpu_us", step.gpu_us},
                       {"prefill_tokens", step.batch.shape.prefill_tokens},
                       {"decode_tokens", step.batch.shape.decode_tokens}});
  }
  return slowest;
}

/// That gave data.
std::vector<int32_t> tiers_of(const ReportData& data) {
  const TierData gave = tier_data(data);
  return AskedTiers{.kernels = gave.kernels, .counters = gave.counters > 0}.numbers();
}

OrderedJson json_of(const MemoryUse& memory) {
  if (memory.total_bytes == 0) return nullptr;
  OrderedJson parts = OrderedJson::array();
  for (const MemoryPart& part : memory.parts) {
    parts.push_back({{"what", part.what},
                     {"bytes", part.bytes},
                     {"most_bytes", part.most_bytes},
                     {"place", part.on_device ? "device" : "page-locked"}});
  }
  return {{"total_bytes", memory.total_bytes},
          {"used_bytes", memory.used_bytes},
          {"used_before_bytes", memory.used_before_bytes},
          {"unexplained_bytes", memory.unexplained_bytes()},
          {"parts", parts}};
}

/// What is not known is null.
OrderedJson json_of(const DeviceUse& use) {
  const auto known = [](double share) { return share < 0.0 ? OrderedJson() : OrderedJson(share); };
  return {{"utilisation", known(use.utilisation)},
          {"traced_utilisation", known(use.traced_utilisation)},
          {"sm_efficiency", known(use.sm_efficiency)},
          {"occupancy", known(use.occupancy)},
          {"measured_sm_active", known(use.measured_sm_active)},
          {"measured_warps_active", known(use.measured_warps_active)}};
}

OrderedJson json_of(const StepBreakdown& parts) {
  return {{"kernel", parts.kernel_us}, {"memcpy", parts.memcpy_us},
          {"memset", parts.memset_us}, {"communication", parts.communication_us},
          {"launch", parts.launch_us}, {"host", parts.host_us},
          {"idle", parts.idle_us}};
}

/// Of the phases that have steps.
OrderedJson json_of(const std::array<StepBreakdown, 3>& by_phase) {
  OrderedJson phases = OrderedJson::object();
  for (size_t i = 0; i < by_phase.size(); ++i) {
    if (by_phase[i].all_us() > 0.0)
      phases[std::string(name(static_cast<StepPhase>(i)))] = json_of(by_phase[i]);
  }
  return phases;
}

/// By kernel lines; null: no step was traced.
OrderedJson traced_breakdown_of(const ReportData& data) {
  const TracedBreakdownSum::Result& traced = data.traced_breakdown;
  if (traced.steps == 0) return nullptr;
  return {{"steps", traced.steps}, {"by_phase", json_of(traced.by_phase)}};
}

OrderedJson json_of(const DraftUse& use) {
  return {{"phase", name(use.phase)},   {"from_context", use.from_context},
          {"steps", use.steps},         {"sequences", use.sequences},
          {"checked", use.checked},     {"proposed", use.proposed},
          {"accepted", use.accepted},   {"us", use.us},
          {"draft_us", use.draft_us},   {"without_us", use.without_us},
          {"measured", use.is_measured}};
}

OrderedJson findings_of(const Diagnosis& diagnosis) {
  std::string text;
  JsonText json(text);
  write_findings(json, diagnosis);
  return OrderedJson::parse(text);
}

}  // namespace

std::string render_report_json(const ReportData& data, const ReportOptions& options) {
  const Aggregate& aggregate = data.sum;
  OrderedJson by_phase = OrderedJson::object();
  for (size_t i = 0; i < aggregate.by_phase.size(); ++i) {
    if (aggregate.by_phase[i].steps == 0) continue;
    by_phase[std::string(name(static_cast<StepPhase>(i)))] = json_of(aggregate.by_phase[i]);
  }
  OrderedJson ops = OrderedJson::array();
  for (const OpAggregate& op : listed_ops(aggregate, options)) {
    ops.push_back(json_of(op, data, aggregate.all.gpu_us));
  }
  OrderedJson launches = OrderedJson::array();
  if (options.launches) {
    for (const KernelLaunch& launch : data.launches)
      launches.push_back(json_of(launch));
  }
  OrderedJson ranges = OrderedJson::array();
  for (const RangeLine& range : data.ranges)
    ranges.push_back(json_of(range));
  OrderedJson rank_ranges = OrderedJson::array();
  for (const RangeLine& range : data.rank_ranges) {
    rank_ranges.push_back({{"rank", range.rank}});
    rank_ranges.back().update(json_of(range));
  }
  OrderedJson drafts = OrderedJson::array();
  for (const DraftUse& use : data.drafts)
    drafts.push_back(json_of(use));
  const ProfileHeader& header = data.header;
  const OrderedJson report{
      {"schema", "minfer.report/1"},
      {"version", header.version},
      {"model", header.model},
      {"device", header.device},
      {"threads", header.threads},
      {"tier", tiers_of(data).back()},
      {"tiers", {{"asked", header.asked.numbers()}, {"gave", tiers_of(data)}}},
      {"ceilings", ceilings_of(header.ceilings)},
      {"cache_bytes", header.cache_bytes},
      {"first_step", data.first_step},
      {"last_step", data.last_step},
      {"dropped", aggregate.dropped},
      {"attributed", aggregate.attributed},
      {"least_attributed", aggregate.least_attributed},
      {"attributed_by", aggregate.attributed_by},
      {"note", data.note},
      {"all", json_of(aggregate.all)},
      {"by_phase", by_phase},
      {"breakdown_us", json_of(data.breakdown)},
      {"traced_breakdown_us", traced_breakdown_of(data)},
      {"device_use", json_of(device_use(aggregate, data.launches, data.ranges, data.counters))},
      {"prefill", json_of(aggregate.prefill)},
      {"decode", json_of(aggregate.decode)},
      {"ops", ops},
      {"read_ahead", read_ahead_json(data)},
      {"converted_weights", converted_ops(header)},
      {"launches", launches},
      {"memory", {{"begin", json_of(header.memory)}, {"end", json_of(data.memory_at_end)}}},
      {"ranges", ranges},
      {"rank_ranges", rank_ranges},
      {"launch_queue", json_of(data.launch_queue)},
      {"ranks", json_of(data.ranks)},
      {"slowest", slowest_of(data)},
      {"outliers", json_of(data.outliers)},
      {"drafts", drafts},
      {"findings", data.diagnosis ? findings_of(*data.diagnosis) : OrderedJson()},
      {"counters", counters_json(data)},
      {"rank_counters", rank_counters_json(data)},
  };
  return report.dump(options.indent, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace minfer
