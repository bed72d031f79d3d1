#include "tests/support/profiling/traced_steps.h"

#include <utility>

namespace minfer::test {
namespace {

OpInfo op(const char* name, int32_t layer) {
  OpInfo info;
  info.name = name;
  info.layer = layer;
  return info;
}

KernelLaunch launch(const char* kernel) {
  KernelLaunch launch;
  launch.kernel = kernel;
  launch.grid = launch.block = {1, 1, 1};
  return launch;
}

}  // namespace

std::vector<OpInfo> traced_ops() {
  return {op("norm", 0), op("product", 0), op("norm", -1), op("unused", -1)};
}

std::vector<KernelLaunch> traced_launches() {
  return {launch("norm"), launch("product"), launch("reduce")};
}

StepStamps traced_stamps(int64_t begin_ns) {
  StepStamps stamps;
  stamps.ops = {{.op = 0, .begin_ns = begin_ns + 1'500, .num_launches = 1},
                {.op = 1, .begin_ns = begin_ns + 7'500, .num_launches = 2},
                {.op = 2, .begin_ns = begin_ns + 19'500, .num_launches = 1}};
  stamps.launches = {0, 1, 2, 0};
  stamps.end_ns = begin_ns + 24'200;
  return stamps;
}

DeviceActivity traced_activity(int32_t name, int64_t begin_ns, int64_t end_ns) {
  return {.kind = ActivityKind::kernel, .step = 7, .begin_ns = begin_ns, .end_ns = end_ns, .name = name};
}

RangeTrace traced_range(int64_t count) {
  constexpr int64_t kStart = 8'000'000'000, kStepNs = 100'000;
  static constexpr int32_t kNames[]{0, 1, 2, 0};
  RangeTrace range;
  range.first_step = 10;
  range.last_step = 9 + count;
  range.launches = traced_launches();
  TraceRecords& records = range.records;
  records.names = {"norm", "product", "reduce", "tell_time"};
  records.start = {.library_ns = kStart, .host_ns = kStart};
  records.stop = {.library_ns = kStart + (count + 1) * kStepNs, .host_ns = kStart + (count + 1) * kStepNs};
  records.dropped = 4;
  records.activities.push_back({.correlation = 1, .begin_ns = kStart + 10, .end_ns = kStart + 20, .name = 0});
  records.activities.push_back({.correlation = 2, .begin_ns = kStart + 30, .end_ns = kStart + 40, .name = 3});
  records.calls.push_back({.correlation = 3, .begin_ns = kStart + 300, .end_ns = kStart + 310});
  records.activities.push_back(
      {.correlation = 3, .begin_ns = kStart + 400, .end_ns = kStart + 410, .name = 3});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = kStart + 1'000 + i * kStepNs;
    const auto correlation = static_cast<uint32_t>(50 + i);
    TracedStep& step = range.steps.emplace_back();
    step.step = 10 + i;
    step.shape.decode_tokens = step.shape.decode_sequences = 1;
    step.stamps = traced_stamps(begin);
    records.windows.push_back({.step = step.step, .begin_ns = begin - 900, .end_ns = begin - 100});
    records.calls.push_back({.correlation = correlation, .begin_ns = begin - 800, .end_ns = begin - 200});
    records.call_steps.push_back({.correlation = correlation, .step = step.step});
    for (int64_t k = 0; k < 4; ++k) {
      records.activities.push_back({.correlation = correlation,
                                    .begin_ns = begin + 1'000 + k * 6'000,
                                    .end_ns = begin + 6'000 + k * 6'000,
                                    .graph_node = 20 + k,
                                    .stream = 7,
                                    .name = kNames[k]});
    }
    records.activities.push_back({.kind = ActivityKind::memcpy,
                                  .correlation = correlation,
                                  .begin_ns = begin + 26'000,
                                  .end_ns = begin + 27'000,
                                  .stream = 7,
                                  .bytes = 512});
  }
  return range;
}

RangeTrace traced_range_of_two(int64_t count) {
  constexpr uint32_t kOther = 1'000;
  RangeTrace range = traced_range(count);
  TraceRecords& records = range.records;
  RankTrace other{.rank = 1,
                  .steps = range.steps,
                  .launches = {launch("reduce"), launch("other"), launch("norm"), launch("product")}};
  for (TracedStep& step : other.steps) {
    step.shape = {};
    step.stamps.launches = {2, 3, 0, 2};
  }
  const auto repeat = [](auto& all, const auto& change) {
    const size_t size = all.size();
    for (size_t i = 0; i < size; ++i) {
      auto each = all[i];
      if (change(each)) all.push_back(each);
    }
  };
  repeat(records.activities, [](TraceRecords::Activity& activity) {
    activity.correlation += kOther;
    activity.begin_ns += 2'000;
    activity.end_ns += 2'000;
    activity.device = 1;
    return activity.correlation >= kOther + 50 && activity.kind == ActivityKind::kernel;
  });
  repeat(records.calls, [](TraceRecords::Call& call) { return (call.correlation += kOther) >= kOther + 50; });
  repeat(records.call_steps, [](TraceRecords::CallStep& call) { return (call.correlation += kOther) > 0; });
  repeat(records.windows, [](TraceRecords::Window& window) { return (window.device = 1) > 0; });
  range.ranks.push_back(std::move(other));
  return range;
}

}  // namespace minfer::test
