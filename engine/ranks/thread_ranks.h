#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/ranks/rank_backends.h"
#include "engine/ranks/rank_channel.h"
#include "engine/ranks/rank_model.h"
#include "engine/ranks/step_message.h"
#include "models/decoder/shard.h"
#include "profiling/record/rank_step.h"

namespace minfer {

/// Several ranks in this process. The first one's model is used on the caller's thread; each of the others runs on a thread of its
/// own, where it does what the first one does.
class ThreadRanks {
 public:
  /// Makes the first rank's share and starts the others, which load theirs at the same time. Throws Error if the model cannot be
  /// divided so, or the machine has too few devices. `source` outlives the ranks.
  ThreadRanks(const ModelSource& source, const EngineOptions& options, int32_t logit_slice);
  /// Ends the others.
  ~ThreadRanks();
  ThreadRanks(const ThreadRanks&) = delete;
  ThreadRanks& operator=(const ThreadRanks&) = delete;

  /// The first rank's share of the model.
  const ModelSource& share() const { return *shares_.front(); }
  std::unique_ptr<Backend> make_backend() { return backends_.make(0); }

  /// The least of all ranks' values; waits for them. Throws what a rank failed with.
  int64_t least(int64_t value) { return channels_.front()->least(value); }
  /// The first rank is ready to lead, as the others are.
  void begin();
  /// Has the others launch the same step, which the first one launches behind this.
  void launch(const StepArgs& step);
  /// Has them finish their oldest step, when the first one has.
  void finish();
  /// What recorded steps took on the others, as far as they have finished since the last call.
  void take_steps(std::vector<RankStep>& steps);

 private:
  void run(int32_t rank, const EngineOptions& options, int32_t logit_slice);

  std::shared_ptr<RankFailure> failure_ = std::make_shared<RankFailure>();
  std::vector<std::unique_ptr<ModelShard>> shares_;
  RankBackends backends_;
  std::vector<std::unique_ptr<RankChannel>> channels_;
  RankOrders orders_;
  std::mutex steps_mutex_;
  std::vector<RankStep> steps_;  ///< not yet taken
  bool has_begun_ = false;
  int32_t open_steps_ = 0;  ///< launched and not finished by the first rank
  std::vector<std::jthread> threads_;
};

}  // namespace minfer
