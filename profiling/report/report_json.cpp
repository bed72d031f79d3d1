#include "profiling/findings/findings_report.h"
#include "profiling/json/json_text.h"
#include "profiling/json/member_json.h"
#include "profiling/report/device/read_ahead.h"
#include "profiling/report/report.h"

namespace minfer {

// Types that convert to JSON directly, also in lists. Unknown values are null.

MINFER_MEMBERS_TO_JSON(Statistics, mean, median, min, max, sd)

static void to_json(OrderedJson& json, const PredictionError& value) {
  if (value.steps == 0) return;
  MINFER_ADD_MEMBERS(steps, longer, median, p95);
}

static void to_json(OrderedJson& json, const StepGroup& value) {
  MINFER_ADD_MEMBERS(steps, wall_us, gpu_us);
  for (size_t i = 0; i < kHostSpans; ++i)
    json["host_us"][std::string(name(static_cast<HostSpan>(i)))] = value.host_us[i];
  json["unattributed_us"] = value.other_us();
  json["idle_us"] = {{"between_steps", value.between_steps_us()},
                     {"host", value.idle_host_us},
                     {"device", value.idle_device_us}};
  MINFER_ADD_MEMBERS(late_ops, prefill_tokens, decode_tokens);
  json["tokens_per_s"] = value.tokens_per_s();
  MINFER_ADD_MEMBERS(step_us);
  json["prediction_error"] = value.prediction;
}

MINFER_MEMBERS_TO_JSON(PhaseTime, us, tokens)

static OrderedJson launches_of(const OpAggregate& op) {
  OrderedJson launches = OrderedJson::array();
  for (const auto& [launch, steps] : op.launches)
    launches.push_back({{"launch", launch}, {"steps", steps}});
  return launches;
}

/// Causes that are known of more than 100 % of the roofline.
static OrderedJson over_roofline_by(const OpAggregate& op, const ReportData& data) {
  OrderedJson causes = OrderedJson::array();
  const auto over = over_roofline(op, data.launches, data.header.cache_bytes);
  if (over && over->read_ahead) causes.push_back("read ahead");
  if (over && over->cache) causes.push_back("cache");
  return causes;
}

/// Written without a point or an exponent as long as it fits.
static int64_t whole(double sum) {
  return static_cast<int64_t>(std::min(sum, 9e18));
}

static OrderedJson ceilings_of(const Ceilings& ceilings) {
  OrderedJson json{{"read_gbps", ceilings.read_gbps}, {"gflops", ceilings.gflops}};
  for (const auto& [name, unit] : kUnitCeilings)
    json[name] = ceilings.*unit;
  return json;
}

static OrderedJson json_of(const OpAggregate& op, const ReportData& data, double all_us) {
  return {{"op", op.op},
          {"us", op.us},
          {"time_share", all_us > 0.0 ? op.us / all_us : 0.0},
          {"calls", op.calls},
          {"call_us", op.call_us},
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
static void to_json(OrderedJson& json, const LaunchQueue& queue) {
  if (queue.is_empty()) return;
  for (const bool in_graph : {false, true}) {
    const LaunchDelays& delays = queue.delays(in_graph);
    json[in_graph ? "in_graph" : "by_itself"] = {{"kernels", delays.kernels},
                                                 {"mean_us", delays.mean_us()},
                                                 {"max_us", delays.max_us},
                                                 {"mean_depth", queue.mean_depth(in_graph)}};
  }
}

MINFER_MEMBERS_TO_JSON(StepFeature, name, slowest, all)

/// Null of nothing.
static void to_json(OrderedJson& json, const Distribution& values) {
  if (values.count() > 0) json = {{"p50", values.quantile(0.5)}, {"p99", values.quantile(0.99)}};
}

MINFER_MEMBERS_TO_JSON(RankUse, rank, steps, computed_us, exchange_us, waited_us, begin_after_us,
                       end_after_us, host_us, idle_us)

/// Null of one rank.
static void to_json(OrderedJson& json, const RankReport& value) {
  if (value.ranks.empty()) return;
  MINFER_ADD_MEMBERS(skew_us, exchange_share, ranks);
}

/// Null where too few steps were recorded.
static void to_json(OrderedJson& json, const Outliers& value) {
  if (value.steps == 0) return;
  MINFER_ADD_MEMBERS(steps, from_us, share);
  json["times_us"] = value.times;
  MINFER_ADD_MEMBERS(shapes);
}

/// A value that is not known is null.
MINFER_MEMBERS_TO_JSON(KernelLaunch, kernel, path, grid, block, cluster, registers, static_shared_bytes,
                       dynamic_shared_bytes, blocks_per_sm, limiter, occupancy, waves, reads_ahead_bytes)

MINFER_MEMBERS_TO_JSON(OpDifference, op, runs, stamped_us, kernel_us, own_us, difference_us,
                       own_difference_us)

static void to_json(OrderedJson& json, const Attribution& value) {
  MINFER_ADD_MEMBERS(steps, step_us);
  json["difference"] = value.difference();
  json["own_difference"] = value.own_difference();
  MINFER_ADD_MEMBERS(ops);
}

MINFER_MEMBERS_TO_JSON(GapSum, gaps, us)

static void to_json(OrderedJson& json, const OpGaps& op) {
  json = {{"op", op.op}, {"us", op.us()}, {"host", op.host}, {"device", op.device}, {"unknown", op.unknown}};
}

MINFER_MEMBERS_TO_JSON(RangeIdle, start, host, device, unknown, ops)

MINFER_MEMBERS_TO_JSON(Stranger, kernel, unmatched, outside)

MINFER_MEMBERS_TO_JSON(RangeLine, first_step, last_step, error, steps, kernels, copies, dropped, invalid,
                       outside, unmatched, missing, of_profiler, strangers, overhead_us, busy_us, idle_us,
                       host_wait_us, idle, attribution)

/// Ops with weights in another type on the device than in the data.
static OrderedJson converted_ops(const ProfileHeader& header) {
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

/// One of the slowest steps.
static void to_json(OrderedJson& json, const StepSummary& step) {
  json = {{"step", step.step},
          {"phase", name(step.phase())},
          {"wall_us", step.wall_us},
          {"gpu_us", step.gpu_us},
          {"prefill_tokens", step.batch.shape.prefill_tokens},
          {"decode_tokens", step.batch.shape.decode_tokens}};
}

/// That gave data.
static std::vector<int32_t> tiers_of(const ReportData& data) {
  const TierData gave = tier_data(data);
  return AskedTiers{.kernels = gave.kernels, .counters = gave.counters > 0}.numbers();
}

static void to_json(OrderedJson& json, const MemoryPart& value) {
  MINFER_ADD_MEMBERS(what, bytes, most_bytes);
  json["place"] = value.on_device ? "device" : "page-locked";
}

static void to_json(OrderedJson& json, const MemoryUse& value) {
  if (value.total_bytes == 0) return;
  MINFER_ADD_MEMBERS(total_bytes, used_bytes, used_before_bytes);
  json["unexplained_bytes"] = value.unexplained_bytes();
  MINFER_ADD_MEMBERS(parts);
}

/// Unknown values are null.
MINFER_MEMBERS_TO_JSON(DeviceUse, utilisation, traced_utilisation, sm_efficiency, occupancy,
                       measured_sm_active, measured_warps_active)

static void to_json(OrderedJson& json, const StepBreakdown& parts) {
  json = {{"kernel", parts.kernel_us}, {"memcpy", parts.memcpy_us},
          {"memset", parts.memset_us}, {"communication", parts.communication_us},
          {"launch", parts.launch_us}, {"host", parts.host_us},
          {"idle", parts.idle_us}};
}

/// The phases that have steps, by name.
template <class Phase>
static OrderedJson phases_of(const std::array<Phase, 3>& by_phase, auto has_steps) {
  OrderedJson phases = OrderedJson::object();
  for (size_t i = 0; i < by_phase.size(); ++i) {
    if (has_steps(by_phase[i])) phases[std::string(name(static_cast<StepPhase>(i)))] = by_phase[i];
  }
  return phases;
}

static bool has_time(const StepBreakdown& parts) {
  return parts.all_us() > 0.0;
}

/// By kernel lines; null: no step was traced.
static OrderedJson traced_breakdown_of(const ReportData& data) {
  const TracedBreakdownSum::Result& traced = data.traced_breakdown;
  if (traced.steps == 0) return nullptr;
  return {{"steps", traced.steps}, {"by_phase", phases_of(traced.by_phase, has_time)}};
}

static void to_json(OrderedJson& json, const DraftUse& value) {
  MINFER_ADD_MEMBERS(phase, from_context, steps, sequences, checked, proposed, accepted, us, draft_us,
                     without_us);
  json["measured"] = value.is_measured;
}

static OrderedJson findings_of(const Diagnosis& diagnosis) {
  std::string text;
  JsonText json(text);
  write_findings(json, diagnosis);
  return OrderedJson::parse(text);
}

static void to_json(OrderedJson& json, const CountedPair::Share& value) {
  MINFER_ADD_MEMBERS(us, read_bytes, counted_read_bytes);
  json["of_counted"] = value.of_counted();
  json["read_gbps"] = value.read_gbps();
}

static void to_json(OrderedJson& json, const CountedPair& value) {
  MINFER_ADD_MEMBERS(front, op, of_front, of_op);
  json["both"] = value.both();
}

static void to_json(OrderedJson& json, const PairShare& share) {
  json = {{"us", share.us}, {"bytes", share.bytes}, {"gbps", share.gbps()}, {"roofline", share.roofline()}};
}

static void to_json(OrderedJson& json, const ReadAheadPair& value) {
  MINFER_ADD_MEMBERS(front, op, runs, ahead_bytes, of_front, of_op);
  json["both"] = value.both();
}

/// A sum over whole steps; null: there was none.
static OrderedJson known(const CounterAggregate& counters, double sum) {
  return counters.steps > 0 ? OrderedJson(sum) : OrderedJson();
}

/// A value that is not known, or was not sampled, is null.
static void to_json(OrderedJson& json, const CounterOp& value) {
  MINFER_ADD_MEMBERS(op, phase, calls);
  json["samples"] = value.samples >= 0 ? OrderedJson(value.samples) : OrderedJson();
  MINFER_ADD_MEMBERS(us, counted_read_bytes, read_error_bytes);
  json["read_gbps"] = value.read_gbps();
  for (const Counter counter : kAllCounters)
    json[std::string(name(counter))] = value.measured[counter];
}

MINFER_MEMBERS_TO_JSON(CounterWork, phase, graph_batch, steps, ops)

/// The first rank's hardware counters; null: the profile has no line of them.
static OrderedJson counters_json(const ReportData& data) {
  if (data.counters.windows == 0 && data.counters.error.empty()) return {};
  const CounterAggregate& counters = data.counters;
  const WindowCost& cost = data.window_cost;
  OrderedJson works = OrderedJson::array();
  for (const CounterWork& work : counters.work) {
    const std::vector<ReadAheadPair> pairs = data.read_ahead.pairs(work.phase);
    works.push_back(work);
    works.back()["read_ahead"] = counted_pairs(data.header.ops, work, pairs);
  }
  return {{"windows", counters.windows},
          {"us", counters.us},
          {"interval_ns", counters.interval_ns},
          {"lost", counters.lost},
          {"fitted", counters.fitted},
          {"steps", counters.steps},
          {"read_bytes", known(counters, counters.read_bytes)},
          {"counted_read_bytes", known(counters, counters.counted_read_bytes)},
          {"written_bytes", known_written_bytes(counters)},
          {"counted_written_bytes", known(counters, counters.counted_written_bytes)},
          {"error", counters.error},
          {"cost",
           {{"steps_inside", cost.inside},
            {"steps_outside", cost.outside},
            {"inside_us", cost.inside_us},
            {"outside_us", cost.outside_us}}},
          {"work", works}};
}

/// The same for each of several ranks, including the first; empty if only the first rank's device was read.
static OrderedJson rank_counters_json(const ReportData& data) {
  OrderedJson ranks = OrderedJson::array();
  const auto add = [&](int32_t rank, const CounterAggregate& counters) {
    ranks.push_back({{"rank", rank},
                     {"windows", counters.windows},
                     {"lost", counters.lost},
                     {"steps", counters.steps},
                     {"steps_us", counters.steps_us},
                     {"read_bytes", known(counters, counters.read_bytes)},
                     {"counted_read_bytes", known(counters, counters.counted_read_bytes)},
                     {"written_bytes", known_written_bytes(counters)},
                     {"nvlink_received_bytes", counters.received_bytes},
                     {"nvlink_sent_bytes", counters.sent_bytes},
                     {"sm_active", mean_share(counters, Counter::sm_active)},
                     {"tensor_active", mean_share(counters, Counter::tensor_active)},
                     {"error", counters.error},
                     {"work", counters.work}});
  };
  if (data.rank_counters.empty()) return ranks;
  add(0, data.counters);
  for (const auto& [rank, counters] : data.rank_counters)
    add(rank, counters);
  return ranks;
}

std::string render_report_json(const ReportData& data, const ReportOptions& options) {
  const Aggregate& aggregate = data.sum;
  OrderedJson ops = OrderedJson::array();
  for (const OpAggregate& op : listed_ops(aggregate, options)) {
    ops.push_back(json_of(op, data, aggregate.all.gpu_us));
  }
  OrderedJson rank_ranges = OrderedJson::array();
  for (const RangeLine& range : data.rank_ranges) {
    rank_ranges.push_back({{"rank", range.rank}});
    rank_ranges.back().update(OrderedJson(range));
  }
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
      {"all", aggregate.all},
      {"by_phase", phases_of(aggregate.by_phase, [](const StepGroup& group) { return group.steps > 0; })},
      {"breakdown_us", phases_of(data.breakdown, has_time)},
      {"traced_breakdown_us", traced_breakdown_of(data)},
      {"device_use", device_use(aggregate, data.launches, data.ranges, data.counters)},
      {"prefill", aggregate.prefill},
      {"decode", aggregate.decode},
      {"ops", ops},
      {"read_ahead", data.read_ahead.pairs()},
      {"converted_weights", converted_ops(header)},
      {"launches", options.launches ? OrderedJson(data.launches) : OrderedJson::array()},
      {"memory", {{"begin", header.memory}, {"end", data.memory_at_end}}},
      {"ranges", data.ranges},
      {"rank_ranges", rank_ranges},
      {"launch_queue", data.launch_queue},
      {"ranks", data.ranks},
      {"slowest", data.slowest},
      {"outliers", data.outliers},
      {"drafts", data.drafts},
      {"findings", data.diagnosis ? findings_of(*data.diagnosis) : OrderedJson()},
      {"counters", counters_json(data)},
      {"rank_counters", rank_counters_json(data)},
  };
  return report.dump(options.indent, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace minfer
