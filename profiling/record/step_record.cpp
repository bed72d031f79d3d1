#include "profiling/record/step_record.h"

#include <charconv>

#include <fmt/format.h>

namespace minfer {

std::string_view name(HostSpan span) {
  static constexpr std::array<std::string_view, kHostSpans> kNames{
      "draft", "schedule", "build", "launch", "wait", "commit", "mask", "detokenise", "respond"};
  return kNames[static_cast<size_t>(span)];
}

std::string_view name(StepPhase phase) {
  static constexpr std::array<std::string_view, 3> kNames{"prefill", "decode", "mixed"};
  return kNames[static_cast<size_t>(phase)];
}

std::string graph_name(StepPhase phase, int32_t sequences) {
  return fmt::format("{}_b{}", name(phase), sequences);
}

int32_t sequences_of_graph(std::string_view graph_name) {
  for (const StepPhase phase : {StepPhase::decode, StepPhase::prefill}) {
    const std::string prefix = fmt::format("{}_b", name(phase));
    if (!graph_name.starts_with(prefix)) continue;
    int32_t sequences = 0;
    const char* end = graph_name.data() + graph_name.size();
    const bool is_number = std::from_chars(graph_name.data() + prefix.size(), end, sequences).ptr == end;
    return is_number && sequences > 0 ? sequences : 0;
  }
  return 0;
}

void StepRecord::clear() {
  step = start_ns = end_ns = 0;
  host_ns.fill(0);
  on_device = queued = false;
  stamps.clear();
  batch = {};
  requests.clear();
  served.clear();
}

void reserve_stamps(StepRecord& record, size_t num_ops) {
  record.stamps.ops.resize(num_ops);
  record.stamps.ops.clear();
  record.stamps.launches.resize(num_ops * kLaunchesOfOp);
  record.stamps.launches.clear();
}

}  // namespace minfer
