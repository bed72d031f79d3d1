#include "profiling/summary/live_profile.h"

#include <algorithm>
#include <utility>

namespace minfer {

LiveProfile::LiveProfile(const StepRecorder& recorder, ProfileHeader header)
    : recorder_(recorder),
      header_(std::move(header)),
      summariser_(header_.ops, header_.ceilings, header_.detail) {}

void LiveProfile::refresh() {
  for (const StepRecord& record : recorder_.after(steps_.empty() ? -1 : steps_.back().step))
    steps_.push_back(summariser_.summarise(record));
  const size_t most = recorder_.capacity();
  if (steps_.size() > most) steps_.erase(steps_.begin(), steps_.end() - static_cast<ptrdiff_t>(most));
}

std::span<const StepSummary> LiveProfile::last(size_t count, int64_t since) const {
  const auto first = std::ranges::upper_bound(steps_, since, {}, &StepSummary::step);
  const std::span<const StepSummary> newer(first, steps_.end());
  return newer.last(std::min(count, newer.size()));
}

Throughput throughput(std::span<const StepSummary> steps, int64_t now_ns, int64_t window_ns) {
  if (steps.empty()) return {};
  int64_t begin_ns = now_ns - window_ns;
  if (steps.front().step > 0) begin_ns = std::max(begin_ns, steps.front().start_ns);
  Throughput result;
  result.window_s = static_cast<double>(now_ns - begin_ns) * 1e-9;
  if (result.window_s <= 0.0) return {};
  const double share = 1.0 / result.window_s;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (step->end_ns() <= begin_ns) break;
    result.steps_per_s += share;
    result.prompt_tokens_per_s += share * step->batch.shape.prefill_tokens;
    const BatchShape& shape = step->batch.shape;
    // A prompt that is scored has a row of logits for each of its tokens, but only the last one draws.
    result.generated_tokens_per_s +=
        share * (shape.decode_logit_rows + std::min(shape.prefill_logit_rows, shape.prefill_sequences));
  }
  return result;
}

}  // namespace minfer
