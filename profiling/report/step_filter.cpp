#include "profiling/report/step_filter.h"

#include <algorithm>

#include <fmt/format.h>

namespace minfer {

bool StepFilter::takes(const StepSummary& step) const {
  if (phase && step.phase() != *phase) return false;
  if (steps && (step.step < steps->first || step.step > steps->second)) return false;
  return request.empty() || std::ranges::find(step.requests, request) != step.requests.end();
}

std::string StepFilter::text() const {
  std::string text = phase ? fmt::format("{} steps", name(*phase)) : "steps";
  if (steps) text += fmt::format(" from {} to {}", steps->first, steps->second);
  if (!request.empty()) text += fmt::format(" of request {}", request);
  return text;
}

}  // namespace minfer
