#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/model_runner.h"
#include "engine/scheduling/batch_builder.h"
#include "engine/scheduling/scheduler.h"

namespace minfer::test {

/// A greedy generation to compute.
struct LogitJob {
  std::vector<TokenId> prompt;
  int32_t num_output = 8;
};

/// Its result: every row of logits from which a token was drawn, bit for bit.
struct LogitTrace {
  std::vector<TokenId> tokens;
  std::vector<float> logits;  ///< [num_output, vocab]
  int32_t num_cached_tokens = 0;
  int32_t num_preemptions = 0;

  /// NaNs are equal if their bits are; 0 and -0 differ.
  bool same_bits(const LogitTrace& other) const;
};

/// The engine's parts, assembled as in Engine, but with access to the logits. A run keeps the KV cache of
/// the runs before it.
class LogitRun {
 public:
  /// Called with the inputs of each step before it runs; may spoil them, or the KV cache.
  using BeforeStep = std::function<void(HostBatch& batch, const KvCache& kv)>;

  /// `source` outlives the object.
  LogitRun(const ModelSource& source, const EngineOptions& options);

  /// Submits all jobs at once and runs them to the end. Throws std::logic_error if blocks or slots leak.
  std::vector<LogitTrace> run(const std::vector<LogitJob>& jobs, const BeforeStep& before_step = {});

  /// Size of the pieces in which prefixes are found.
  int32_t block_tokens() const { return blocks_.block_size(); }
  const EngineOptions& options() const { return runner_.options(); }
  const RecurrentStatePool& states() const { return runner_.states(); }
  const StateCopies& state_copies() const { return scheduler_.state_copies(); }
  int64_t num_steps() const { return num_steps_; }  ///< of all runs

 private:
  void step(const BeforeStep& before_step);

  struct TracedSequence : Sequence {
    TracedSequence(const LogitJob& job, LogitTrace& where)
        : Sequence("", job.prompt, job.num_output), trace(where) {}
    LogitTrace& trace;
  };

  ModelRunner runner_;
  BlockManager blocks_;
  Scheduler scheduler_;
  BatchBuilder builder_;
  int64_t num_steps_ = 0;
};

}  // namespace minfer::test
