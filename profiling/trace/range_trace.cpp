#include "profiling/trace/range_trace.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace minfer {

std::vector<RangeTrace> by_rank(RangeTrace range) {
  std::vector<RankTrace> others = std::exchange(range.ranks, {});
  int32_t count = 1;
  for (const RankTrace& other : others)
    count = std::max(count, other.rank + 1);
  std::vector<TraceRecords> records = split_devices(std::move(range.records), count);
  range.records = std::move(records.front());
  std::unordered_map<int64_t, BatchShape> shapes;  // by step
  for (const TracedStep& step : range.steps)
    shapes.emplace(step.step, step.shape);
  std::vector<RangeTrace> ranges;
  ranges.push_back(std::move(range));
  for (RankTrace& other : others) {
    // Steps that the first rank did not record have no line to which kernels could belong.
    std::erase_if(other.steps, [&](const TracedStep& step) { return !shapes.contains(step.step); });
    for (TracedStep& step : other.steps)
      step.shape = shapes[step.step];
    ranges.push_back({.first_step = ranges.front().first_step,
                      .last_step = ranges.front().last_step,
                      .error = ranges.front().error,
                      .steps = std::move(other.steps),
                      .records = std::move(records[static_cast<size_t>(other.rank)]),
                      .launches = std::move(other.launches),
                      .rank = other.rank,
                      .file_launches = ranges.front().launches});
  }
  return ranges;
}

}  // namespace minfer
