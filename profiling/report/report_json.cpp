#include <nlohmann/json.hpp>

#include "profiling/report/counters_report.h"
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
          {"step_us", json_of(group.step_us)}};
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

OrderedJson json_of(const OpAggregate& op, double all_us) {
  return {{"op", op.op},
          {"us", op.us},
          {"time_share", all_us > 0.0 ? op.us / all_us : 0.0},
          {"calls", op.calls},
          {"call_us", json_of(op.call_us)},
          {"bytes", op.bytes},
          {"flops", op.flops},
          {"gbps", op.gbps()},
          {"tflops", op.tflops()},
          {"roofline", op.roofline()},
          {"bound", name(op.bound)},
          {"above_roofline_us", op.bound == Bound::unknown ? 0.0 : op.above_floor_us()},
          {"idle_us", op.idle_us},
          {"launches", launches_of(op)}};
}

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
          {"waves", launch.waves}};
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

OrderedJson json_of(const RangeLine& range) {
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
          {"overhead_us", range.overhead_us},
          {"busy_us", range.busy_us},
          {"idle_us", range.idle_us},
          {"host_wait_us", range.host_wait_us},
          {"attribution", json_of(range.attribution)}};
}

OrderedJson slowest_of(const ProfileFile& file, const ReportOptions& options) {
  OrderedJson slowest = OrderedJson::array();
  for (const StepSummary* step : slowest_steps(file.steps, options.phase, options.slowest)) {
    slowest.push_back({{"step", step->step},
                       {"phase", name(step->phase())},
                       {"wall_us", step->wall_us},
                       {"gpu_us", step->gpu_us},
                       {"prefill_tokens", step->batch.shape.prefill_tokens},
                       {"decode_tokens", step->batch.shape.decode_tokens}});
  }
  return slowest;
}

/// A value that is not known is null.
OrderedJson json_of(const CounterOp& op) {
  OrderedJson json{{"op", op.op},
                   {"phase", name(op.phase)},
                   {"calls", op.calls},
                   {"us", op.us},
                   {"counted_read_bytes", op.counted_read_bytes},
                   {"read_error_bytes", op.read_error_bytes},
                   {"read_gbps", op.read_gbps()}};
  for (const Counter counter : kAllCounters) {
    if (op.measured.has(counter)) json[std::string(name(counter))] = op.measured[counter];
  }
  return json;
}

OrderedJson json_of(const CounterAggregate& counters, const WindowCost& cost) {
  OrderedJson works = OrderedJson::array();
  for (const CounterWork& work : counters.work) {
    OrderedJson ops = OrderedJson::array();
    for (const CounterOp& op : work.ops)
      ops.push_back(json_of(op));
    works.push_back({{"phase", name(work.phase)},
                     {"graph_batch", work.graph_batch},
                     {"steps", work.steps},
                     {"ops", ops}});
  }
  return {{"windows", counters.windows},
          {"us", counters.us},
          {"interval_ns", counters.interval_ns},
          {"lost", counters.lost},
          {"fitted", counters.fitted},
          {"steps", counters.steps},
          {"read_bytes", counters.read_bytes},
          {"counted_read_bytes", counters.counted_read_bytes},
          {"written_bytes", counters.written_bytes},
          {"counted_written_bytes", counters.counted_written_bytes},
          {"error", counters.error},
          {"cost",
           {{"steps_inside", cost.inside},
            {"steps_outside", cost.outside},
            {"inside_us", cost.inside_us},
            {"outside_us", cost.outside_us}}},
          {"work", works}};
}

}  // namespace

std::string render_report_json(const ProfileFile& file, const Aggregate& aggregate,
                               const ReportOptions& options) {
  OrderedJson by_phase = OrderedJson::object();
  for (size_t i = 0; i < aggregate.by_phase.size(); ++i) {
    if (aggregate.by_phase[i].steps == 0) continue;
    by_phase[std::string(name(static_cast<StepPhase>(i)))] = json_of(aggregate.by_phase[i]);
  }
  OrderedJson ops = OrderedJson::array();
  for (const OpAggregate& op : sorted_ops(aggregate.ops, options.sort, options.top)) {
    ops.push_back(json_of(op, aggregate.all.gpu_us));
  }
  OrderedJson launches = OrderedJson::array();
  for (const KernelLaunch& launch : file.launches)
    launches.push_back(json_of(launch));
  OrderedJson ranges = OrderedJson::array();
  for (const RangeLine& range : file.ranges)
    ranges.push_back(json_of(range));
  const ProfileHeader& header = file.header;
  const OrderedJson report{
      {"schema", "minfer.report/1"},
      {"version", header.version},
      {"model", header.model},
      {"device", header.device},
      {"threads", header.threads},
      {"tier", 0},
      {"ceilings", {{"read_gbps", header.ceilings.read_gbps}, {"gflops", header.ceilings.gflops}}},
      {"first_step", file.steps.front().step},
      {"last_step", file.steps.back().step},
      {"dropped", aggregate.dropped},
      {"attributed", aggregate.attributed},
      {"least_attributed", aggregate.least_attributed},
      {"attributed_by", aggregate.attributed_by},
      {"note", file.note},
      {"all", json_of(aggregate.all)},
      {"by_phase", by_phase},
      {"prefill", json_of(aggregate.prefill)},
      {"decode", json_of(aggregate.decode)},
      {"ops", ops},
      {"launches", launches},
      {"ranges", ranges},
      {"slowest", slowest_of(file, options)},
      {"counters", file.counters.empty()
                       ? OrderedJson()
                       : json_of(aggregate_counters(file.counters), window_cost(file.counters, file.steps))},
  };
  return report.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace minfer
