#include "tests/support/models/logit_run.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace minfer::test {

bool LogitTrace::same_bits(const LogitTrace& other) const {
  return tokens == other.tokens && logits.size() == other.logits.size() &&
         std::memcmp(logits.data(), other.logits.data(), logits.size() * sizeof(float)) == 0;
}

LogitRun::LogitRun(const ModelSource& source, const EngineOptions& options)
    : runner_(source, options, options.max_num_seqs),
      blocks_(block_manager_options(runner_.options())),
      scheduler_(runner_.options(), blocks_),
      builder_(runner_.options()) {}

std::vector<LogitTrace> LogitRun::run(const std::vector<LogitJob>& jobs, const BeforeStep& before_step) {
  std::vector<LogitTrace> traces(jobs.size());
  std::vector<std::unique_ptr<TracedSequence>> sequences;
  for (size_t i = 0; i < jobs.size(); ++i) {
    sequences.push_back(std::make_unique<TracedSequence>(jobs[i], traces[i]));
    if (const auto refusal = scheduler_.enqueue(*sequences.back())) throw std::logic_error(*refusal);
  }
  while (scheduler_.has_work())
    step(before_step);
  if (blocks_.num_live() != 0) throw std::logic_error("LogitRun: leaked blocks");
  if (scheduler_.state_slots().num_free() != runner_.options().num_state_slots)
    throw std::logic_error("LogitRun: leaked slots of states");
  if (scheduler_.state_copies().num_writing() != 0)
    throw std::logic_error("LogitRun: leaked copies of states");
  scheduler_.state_copies().check();
  for (const auto& sequence : sequences) {
    sequence->trace.num_cached_tokens = sequence->num_cached_tokens;
    sequence->trace.num_preemptions = sequence->num_preemptions;
  }
  return traces;
}

void LogitRun::step(const BeforeStep& before_step) {
  ++num_steps_;
  const ScheduledBatch& scheduled = scheduler_.schedule();
  HostBatch batch = builder_.build(scheduled);
  if (before_step) before_step(batch, runner_.kv());
  const LogitRows logits = runner_.logits(batch.view());
  const float* row = logits.values.data();
  for (const ScheduledSequence& entry : scheduled.sequences) {
    if (entry.num_logit_rows == 0) {
      scheduler_.commit(entry, {});
      continue;
    }
    auto& sequence = static_cast<TracedSequence&>(*entry.sequence);
    const auto token = static_cast<TokenId>(std::max_element(row, row + logits.vocab_size) - row);
    sequence.trace.tokens.push_back(token);
    sequence.trace.logits.insert(sequence.trace.logits.end(), row, row + logits.vocab_size);
    row += logits.vocab_size;
    scheduler_.commit(entry, {&token, 1});
    if (sequence.reached_max_tokens()) scheduler_.finish(sequence, FinishReason::length);
  }
}

}  // namespace minfer::test
