#pragma once

#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/scheduling/scheduler.h"

namespace minfer::test {

/// Options with 16 blocks of 4 tokens, 4 slots and 8 tokens a step.
inline EngineOptions small_options() {
  EngineOptions options;
  options.block_size = 4;
  options.num_blocks = 16;
  options.max_model_len = 64;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 8;
  return options;
}

/// A scheduler with sequences by name. Steps are written as text: "a:9+1* | b:0+4" is a decode step of `a`
/// that computes its token 9 and wants logits, beside a prefill chunk of `b` with tokens 0 to 3.
class SchedulerSteps {
 public:
  explicit SchedulerSteps(const EngineOptions& options, const PrefillBudget* prefill_limit = nullptr)
      : blocks_(block_manager_options(options)), scheduler_(options, blocks_, prefill_limit) {}

  /// Adds a sequence with a prompt of `num_tokens` tokens that no other name shares.
  std::optional<std::string> add(const std::string& id, int32_t num_tokens, int32_t max_tokens = 100,
                                 int32_t priority = 0) {
    std::vector<TokenId> prompt(static_cast<size_t>(num_tokens));
    std::iota(prompt.begin(), prompt.end(), 1000 * static_cast<TokenId>(sequences_.size() + 1));
    return add_prompt(id, std::move(prompt), max_tokens, priority);
  }

  std::optional<std::string> add_prompt(const std::string& id, std::vector<TokenId> prompt,
                                        int32_t max_tokens = 100, int32_t priority = 0,
                                        bool scores_prompt = false) {
    auto& sequence = sequences_[id];
    sequence = std::make_unique<Sequence>(id, std::move(prompt), max_tokens, priority);
    if (scores_prompt) sequence->num_unscored = sequence->size() - 1;
    return scheduler_.enqueue(*sequence);
  }

  std::string schedule() {
    batch_ = scheduler_.schedule();
    std::string decodes, prefills;
    for (const ScheduledSequence& each : batch_.sequences) {
      const bool is_decode = &each < batch_.sequences.data() + batch_.num_decode_sequences;
      std::string& text = is_decode ? decodes : prefills;
      if (!text.empty()) text += ' ';
      text += fmt::format("{}:{}+{}{}", each.sequence->id, each.first_token, each.num_tokens,
                          each.num_logit_rows > 0 ? "*" : "");
    }
    if (prefills.empty()) return decodes;
    return decodes.empty() ? "| " + prefills : decodes + " | " + prefills;
  }

  void commit() {
    for (const ScheduledSequence& each : batch_.sequences) {
      const std::vector<TokenId> sampled(static_cast<size_t>(each.num_drawn()), next_token_++);
      scheduler_.commit(each, sampled);
      if (!sampled.empty() && each.sequence->reached_max_tokens())
        scheduler_.finish(*each.sequence, FinishReason::length);
    }
    std::vector<const Sequence*> running(scheduler_.running().begin(), scheduler_.running().end());
    blocks_.check(running);
  }

  std::string step() {
    const std::string text = schedule();
    commit();
    return text;
  }

  void cancel(const std::string& id) { scheduler_.finish(*sequences_[id], FinishReason::cancelled); }
  Sequence& operator[](const std::string& id) { return *sequences_[id]; }
  Scheduler& scheduler() { return scheduler_; }
  BlockManager& blocks() { return blocks_; }
  const ScheduledBatch& batch() const { return batch_; }

 private:
  BlockManager blocks_;
  Scheduler scheduler_;
  std::map<std::string, std::unique_ptr<Sequence>> sequences_;
  ScheduledBatch batch_;
  TokenId next_token_ = 1;
};

/// A sequence that has drawn its first token.
inline Sequence& decoding_sequence(SchedulerSteps& steps, const std::string& id, int32_t num_tokens) {
  steps.add(id, num_tokens);
  while (steps[id].num_output_tokens() == 0)
    steps.step();
  return steps[id];
}

}  // namespace minfer::test
