// The load by the steps: the requests that waited or decoded, and their conditions.
#include <algorithm>
#include <utility>

#include "profiling/findings/evidence.h"

namespace minfer {
namespace {

constexpr double kNearlyFull = 0.9;    // of the KV cache's blocks
constexpr double kMostOfBudget = 0.8;  // of a step's tokens
constexpr int32_t kFewSequences = 4;   // decode steps of no more read all weights for very little work

}  // namespace

uint32_t Evidence::conditions_of(const StepSummary& step, bool is_after_pause) {
  const bool is_preempted = step.batch.preempted > 0;
  const bool was_preempted = std::exchange(last_preempted_, is_preempted);
  uint32_t conditions = 0;
  const auto set = [&](StepCondition condition, bool holds) {
    conditions |= uint32_t{holds} << static_cast<uint32_t>(condition);
  };
  set(StepCondition::beside_prompts, step.phase() == StepPhase::mixed);
  set(StepCondition::prompts_alone, step.phase() == StepPhase::prefill);
  set(StepCondition::preempted, is_preempted || was_preempted);
  set(StepCondition::long_context, is_uneven(step.batch.shape));
  set(StepCondition::after_pause, is_after_pause);
  set(StepCondition::eager, step.on_device && step.batch.graph_batch == 0);
  return conditions;
}

/// `attention_us`: of decoding.
void Evidence::add_uneven(const StepSummary& step, double attention_us) {
  const BatchShape& shape = step.batch.shape;
  if (!is_uneven(shape)) return;
  const double longest = shape.longest_context, all = static_cast<double>(shape.decode_context);
  const double others = (all - longest) / (shape.decode_sequences - 1);
  UnevenSteps& uneven = steps.uneven;
  uneven.steps.add(step.wall_us);
  uneven.sequences += shape.decode_sequences;
  uneven.longest += longest;
  uneven.others += others;
  uneven.attention_us += attention_us;
  uneven.keys_us += attention_us * (longest - others) / all;
  uneven.wait_us += attention_us * (1.0 - others / longest);
}

void Evidence::add_load(const StepSummary& step) {
  const StepBatch& batch = step.batch;
  const BatchShape& shape = batch.shape;
  const bool fills_target = batch.prefill_budget > 0 && shape.prefill_tokens >= batch.prefill_budget;
  const bool fills_budget =
      fills_target || (max_num_batched_tokens_ > 0 && shape.tokens() >= max_num_batched_tokens_);
  if (batch.waiting > 0) {
    steps.waiting.add(step.wall_us);
    const int32_t sequences = shape.decode_sequences + shape.prefill_sequences;
    if (max_num_seqs_ > 0 && sequences >= max_num_seqs_) {
      steps.slots_full.add(step.wall_us);
    } else if (!fills_budget &&
               (cuts_prompts_ || batch.kv_blocks_used >= kNearlyFull * batch.kv_blocks_total)) {
      steps.memory_full.add(step.wall_us);  // nothing else keeps a request from being admitted
      steps.memory_full_decode_us += std::max(0.0, step.wall_us - step.prefill.us);
      steps.memory_full_wanted = std::max(steps.memory_full_wanted, sequences + batch.waiting);
    } else if (shape.decode_tokens >= kMostOfBudget * static_cast<double>(max_num_batched_tokens_)) {
      steps.decode_fills_budget.add(step.wall_us);
    }
  }
  if (fills_budget && shape.prefill_tokens > 0) {
    steps.cut_prefill.add(step.wall_us);
    steps.cut_tokens += shape.prefill_tokens;
  }
  if (batch.drafts > 0) {
    steps.drafted_late_us += step.idle_host_us;
    steps.drafted_exposed_us += step.exposed_us();
  }
  if (shape.prefill_tokens > 0 || batch.waiting > 0) steps.last = {};
  if (step.phase() == StepPhase::decode && batch.waiting == 0) {
    steps.last.steps.add(step.wall_us);
    steps.last.sequences += shape.decode_sequences;
    steps.last.most = std::max(steps.last.most, shape.decode_sequences);
    if (shape.decode_sequences <= kFewSequences && batch.drafts == 0) {
      steps.few.add(step.wall_us);
      steps.few_sequences += shape.decode_sequences;
    }
  }
  if (step.phase() == StepPhase::mixed) {
    steps.blocked_tokens += shape.decode_tokens;
    steps.longest_mixed_us = std::max(steps.longest_mixed_us, step.wall_us);
    if (batch.prefill_budget > 0) steps.mixed_errors.add(step);
  }
  if (!step.on_device || step.phase() != StepPhase::decode || batch.drafts > 0) return;
  (batch.graph_batch > 0 ? steps.graph : steps.eager).add(step.wall_us);
  if (batch.graph_batch == 0) return add_eager(step);
  steps.padded_tokens += batch.padded_tokens;
  steps.graph_tokens += shape.decode_tokens;
}

void Evidence::add_eager(const StepSummary& step) {
  for (const OpSummary& op : step.ops)
    steps.eager_launches += op.calls * std::ssize(op.launches);
  if (step.idle_source != IdleSource::end_stamps) return;
  steps.eager_looked_at.add(step.wall_us);
  steps.eager_looked_at_idle_us += step.gpu_idle_us;
}

}  // namespace minfer
