#pragma once

#include <memory>

#include "engine/ranks/rank_backends.h"
#include "engine/ranks/ranks.h"
#include "models/decoder/weights/shard.h"

namespace minfer {

/// The ranks are processes, which a launcher started: this is the first one.
class ProcessRanks final : public Ranks {
 public:
  /// `options` with their processes. Throws Error if the model cannot be divided so. `source` outlives the ranks.
  ProcessRanks(const ModelSource& source, const EngineOptions& options);
  /// Ends the others.
  ~ProcessRanks() override;
  ProcessRanks(const ProcessRanks&) = delete;
  ProcessRanks& operator=(const ProcessRanks&) = delete;

  ModelSource& share() override { return share_; }
  std::unique_ptr<Backend> make_backend() override { return backends_.make(0); }
  void check() override;
  void take_steps(std::vector<RankStep>& steps) override;
  std::vector<RankCounters> counters() const override;

 private:
  RankChannel& channel() override { return *channel_; }

  std::shared_ptr<ProcessGroup> processes_;
  std::chrono::milliseconds patience_;
  bool has_gpus_;
  ModelShard share_;
  RankBackends backends_;
  std::unique_ptr<RankChannel> channel_;
};

/// Sets the number of ranks to that of the processes. Throws Error if another number is asked for.
void choose_for_processes(EngineOptions& options);

/// Thrown instead of an Error where a process of another rank than the first has done all that it was started for.
struct FollowedToEnd {};

/// What such a process does: follow() with its share of `source`, then FollowedToEnd. Throws what that throws, and then has told the
/// other processes.
[[noreturn]] void follow_first_process(const ModelSource& source, const EngineOptions& options,
                                       int32_t logit_slice);

}  // namespace minfer
