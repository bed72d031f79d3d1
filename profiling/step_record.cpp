#include "profiling/step_record.h"

namespace minfer {

std::string_view name(HostSpan span) {
  static constexpr std::array<std::string_view, kHostSpans> kNames{
      "schedule", "build", "launch", "wait", "commit", "detokenise", "respond"};
  return kNames[static_cast<size_t>(span)];
}

std::string_view name(StepPhase phase) {
  static constexpr std::array<std::string_view, 3> kNames{"prefill", "decode", "mixed"};
  return kNames[static_cast<size_t>(phase)];
}

}  // namespace minfer
