#include "profiling/findings/draft_evidence.h"

#include <algorithm>
#include <bit>

namespace minfer {
namespace {

constexpr int64_t kEnoughPlainSteps = 8;

double draft_us_of(const StepSummary& step) {
  return step.host_us[static_cast<size_t>(HostSpan::draft)];
}

/// The time of decoding; of a mixed step, only decoding and finding drafts. Without drafts, a device would not wait for the host.
double decoding_us(const StepSummary& step) {
  if (step.phase() != StepPhase::decode) return step.decode.us + draft_us_of(step);
  return step.wall_us - (step.on_device && step.batch.drafts == 0 ? step.exposed_us() : 0.0);
}

}  // namespace

void DraftUse::operator+=(const DraftUse& other) {
  steps += other.steps;
  sequences += other.sequences;
  checked += other.checked;
  proposed += other.proposed;
  accepted += other.accepted;
  us += other.us;
  draft_us += other.draft_us;
  without_us += other.without_us;
}

/// The time of a step with drafts if it had none.
double DraftEvidence::plain_us(const StepSummary& step) const {
  const BatchShape& shape = step.batch.shape;
  if (step.phase() != StepPhase::decode) return step.decode.us;
  double ops_us = 0.0, all_ops_us = 0.0;
  for (const OpSummary& op : step.ops) {
    const double now_us = ceilings_.floor_us(op.bytes, op.flops, {});
    const int64_t flops = op.flops / shape.decode_tokens * shape.decode_sequences;
    ops_us += now_us > 0.0 ? op.us * ceilings_.floor_us(op.bytes, flops, {}) / now_us : op.us;
    all_ops_us += op.us;
  }
  return ops_us + (step.on_device ? 0.0 : std::max(0.0, step.wall_us - draft_us_of(step) - all_ops_us));
}

void DraftEvidence::add(const StepSummary& step) {
  const BatchShape& shape = step.batch.shape;
  if (shape.decode_sequences == 0 || shape.decode_tokens < shape.decode_sequences) return;
  const auto context = static_cast<uint64_t>(shape.decode_context / shape.decode_sequences);
  const auto bits = static_cast<int>(std::bit_width(context));
  Cell& cell = cells_[{step.phase(), bits}];
  if (step.batch.drafts == 0) {
    for (LineFit* plain : {&cell.plain, &plain_[step.phase()]})
      plain->add(shape.decode_sequences, decoding_us(step));
    return;
  }
  cell.drafted.phase = step.phase();
  cell.drafted.from_context = bits > 0 ? int64_t{1} << (bits - 1) : 0;
  // A step without drafts gives a token a sequence.
  const double steps = 1.0 + static_cast<double>(step.batch.accepted_tokens) / shape.decode_sequences;
  DraftUse use{.steps = 1, .sequences = shape.decode_sequences, .checked = shape.decode_tokens};
  use.proposed = step.batch.draft_tokens;
  use.accepted = step.batch.accepted_tokens;
  use.us = decoding_us(step);
  use.draft_us = draft_us_of(step);
  use.without_us = steps * plain_us(step);
  cell.drafted += use;
}

std::vector<DraftUse> DraftEvidence::uses() const {
  std::vector<DraftUse> uses;
  for (const auto& [key, cell] : cells_) {
    if (cell.drafted.steps == 0) continue;
    DraftUse& use = uses.emplace_back(cell.drafted);
    const auto all = plain_.find(use.phase);
    const bool is_known = cell.plain.count() >= kEnoughPlainSteps;
    if (!is_known && (all == plain_.end() || all->second.count() < kEnoughPlainSteps)) continue;
    const LineFit& plain = is_known ? cell.plain : all->second;
    const double sequences = static_cast<double>(use.sequences) / static_cast<double>(use.steps);
    const double step_us = plain.is_known() ? plain.fixed() + plain.each() * sequences
                                            : plain.mean_y() * sequences / plain.mean_x();
    use.without_us = static_cast<double>(use.tokens()) / sequences * step_us;
    use.is_measured = true;
  }
  return uses;
}

}  // namespace minfer
