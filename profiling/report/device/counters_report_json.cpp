#include "profiling/report/device/counters_report_json.h"

#include "profiling/report/device/counters_report.h"
#include "profiling/report/device/read_ahead.h"

namespace minfer {

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

OrderedJson counters_json(const ReportData& data) {
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

OrderedJson read_ahead_json(const ReportData& data) {
  return data.read_ahead.pairs();
}

OrderedJson rank_counters_json(const ReportData& data) {
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

}  // namespace minfer
