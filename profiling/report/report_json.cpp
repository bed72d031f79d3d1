#include <nlohmann/json.hpp>

#include "profiling/report/report.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Statistics& statistics) {
  return {{"mean", statistics.mean},
          {"median", statistics.median},
          {"min", statistics.min},
          {"max", statistics.max},
          {"sd", statistics.sd}};
}

Json json_of(const StepGroup& group) {
  Json host = Json::object();
  for (size_t i = 0; i < kHostSpans; ++i)
    host[std::string(name(static_cast<HostSpan>(i)))] = group.host_us[i];
  return {{"steps", group.steps},
          {"wall_us", group.wall_us},
          {"gpu_us", group.gpu_us},
          {"host_us", host},
          {"unattributed_us", group.other_us()},
          {"prefill_tokens", group.prefill_tokens},
          {"decode_tokens", group.decode_tokens},
          {"tokens_per_s", group.tokens_per_s()},
          {"step_us", json_of(group.step_us)}};
}

Json json_of(const PhaseAggregate& phase) {
  return {{"us", phase.us}, {"tokens", phase.tokens}};
}

Json json_of(const OpAggregate& op, double all_us) {
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
          {"above_roofline_us", op.bound == Bound::unknown ? 0.0 : op.above_floor_us()}};
}

Json slowest_of(const ProfileFile& file, const ReportOptions& options) {
  Json slowest = Json::array();
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

}  // namespace

std::string render_report_json(const ProfileFile& file, const Aggregate& aggregate,
                               const ReportOptions& options) {
  Json by_phase = Json::object();
  for (size_t i = 0; i < aggregate.by_phase.size(); ++i) {
    if (aggregate.by_phase[i].steps == 0) continue;
    by_phase[std::string(name(static_cast<StepPhase>(i)))] = json_of(aggregate.by_phase[i]);
  }
  Json ops = Json::array();
  for (const OpAggregate& op : sorted_ops(aggregate.ops, options.sort, options.top)) {
    ops.push_back(json_of(op, aggregate.all.gpu_us));
  }
  const ProfileHeader& header = file.header;
  const Json report{
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
      {"note", file.note},
      {"all", json_of(aggregate.all)},
      {"by_phase", by_phase},
      {"prefill", json_of(aggregate.prefill)},
      {"decode", json_of(aggregate.decode)},
      {"ops", ops},
      {"slowest", slowest_of(file, options)},
  };
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace minfer
