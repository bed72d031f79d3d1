#include "profiling/diff/diff_sums.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace minfer {

std::string StepKind::text() const {
  if (tokens == 0) return std::string(name(phase));
  const char* about = phase == StepPhase::decode ? "" : "up to ";
  return fmt::format("{} of {}{} token{}", name(phase), about, tokens, tokens == 1 ? "" : "s");
}

StepKind kind_of(const StepBatch& batch) {
  const int64_t all = int64_t{batch.shape.prefill_tokens} + batch.shape.decode_tokens + batch.padded_tokens;
  const auto tokens = static_cast<uint32_t>(std::clamp<int64_t>(all, 1, 1 << 30));
  const StepPhase phase = batch.phase();
  return {phase, static_cast<int32_t>(phase == StepPhase::decode ? tokens : std::bit_ceil(tokens))};
}

void KindSum::add(const KindSum& other) {
  wall_us.add(other.wall_us);
  tokens.add(other.tokens);
  rest_us.add(other.rest_us);
  for (const auto& [key, op] : other.ops) {
    Op& sum = ops[key];
    sum.us.add(op.us);
    sum.bytes += op.bytes;
    for (const auto& [launch, steps] : op.launches)
      sum.launches[launch] += steps;
  }
}

void DiffSums::step(StepSummary& step) {
  KindSum& kind = kinds_[kind_of(step.batch)];
  double ops_us = 0.0;
  for (const OpSummary& op : step.ops) {
    KindSum::Op& sum = kind.ops[{op.op, op.phase}];
    sum.us.add(op.us);
    sum.bytes += static_cast<double>(op.bytes);
    for (const int32_t launch : op.launches)
      ++sum.launches[launch];
    ops_us += op.us;
  }
  kind.wall_us.add(step.wall_us);
  kind.rest_us.add(std::max(0.0, step.wall_us - ops_us));
  kind.tokens.add(step.batch.shape.prefill_tokens + step.batch.shape.decode_tokens);
}

}  // namespace minfer
