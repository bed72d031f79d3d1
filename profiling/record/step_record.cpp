#include "profiling/record/step_record.h"

namespace minfer {

std::string_view name(HostSpan span) {
  static constexpr std::array<std::string_view, kHostSpans> kNames{
      "schedule", "build", "launch", "wait", "commit", "mask", "detokenise", "respond"};
  return kNames[static_cast<size_t>(span)];
}

std::string_view name(StepPhase phase) {
  static constexpr std::array<std::string_view, 3> kNames{"prefill", "decode", "mixed"};
  return kNames[static_cast<size_t>(phase)];
}

void StepRecord::clear() {
  step = start_ns = end_ns = 0;
  host_ns.fill(0);
  on_device = queued = false;
  stamps.clear();
  batch = {};
  requests.clear();
}

void reserve_stamps(StepRecord& record, size_t num_ops) {
  record.stamps.ops.resize(num_ops);
  record.stamps.ops.clear();
  record.stamps.launches.resize(num_ops * kLaunchesOfOp);
  record.stamps.launches.clear();
}

}  // namespace minfer
