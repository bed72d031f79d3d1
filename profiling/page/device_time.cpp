#include "profiling/page/device_time.h"

#include <algorithm>

namespace minfer {

void DeviceTime::add(const StepSummary& step) {
  const auto part = [](double us, int32_t requests) {
    return requests > 0 ? us / static_cast<double>(requests) : 0.0;
  };
  Sums sums = sums_.empty() ? Sums() : sums_.back();
  sums.prefill_us += part(step.prefill.us, step.batch.shape.prefill_sequences);
  sums.decode_us += part(step.decode.us, step.batch.shape.decode_sequences);
  sums.all_us += step.gpu_us;
  steps_.push_back(step.step);
  sums_.push_back(sums);
}

DeviceTime::Part DeviceTime::of(const RequestSteps& steps) const {
  if (steps.first < 0 || steps_.empty() || steps.first < steps_.front() || steps.last > steps_.back())
    return {.us = -1.0};
  const auto begin = std::ranges::lower_bound(steps_, steps.first) - steps_.begin();
  const auto end = std::ranges::upper_bound(steps_, steps.last) - steps_.begin();
  const auto prompt_end = std::min<ptrdiff_t>(begin + steps.prefill, end);
  const auto sums_before = [&](ptrdiff_t i) { return i > 0 ? sums_[static_cast<size_t>(i - 1)] : Sums(); };
  const Sums at_begin = sums_before(begin), at_prompt_end = sums_before(prompt_end),
             at_end = sums_before(end);
  double decode_us = at_end.decode_us - at_prompt_end.decode_us;
  if (end - prompt_end > steps.decode)
    decode_us *= static_cast<double>(steps.decode) / static_cast<double>(end - prompt_end);
  const double all_us = at_end.all_us - at_begin.all_us;
  const double us = at_prompt_end.prefill_us - at_begin.prefill_us + decode_us;
  return {.us = us, .share = all_us > 0.0 ? us / all_us : 0.0};
}

}  // namespace minfer
