#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/ranks/rank_backends.h"
#include "engine/ranks/ranks.h"
#include "models/decoder/weights/shard.h"
#include "profiling/record/rank_step.h"

namespace minfer {

/// Several ranks in this process. The first one's model is used on the caller's thread; each of the others runs on a thread of its
/// own, where it does what the first one does.
class ThreadRanks final : public Ranks {
 public:
  /// Makes the first rank's share and starts the others, which load theirs at the same time. Throws Error if the model cannot be
  /// divided so, or the machine has too few devices. `source` outlives the ranks.
  ThreadRanks(const ModelSource& source, const EngineOptions& options, int32_t logit_slice);
  /// Ends the others.
  ~ThreadRanks() override;
  ThreadRanks(const ThreadRanks&) = delete;
  ThreadRanks& operator=(const ThreadRanks&) = delete;

  ModelSource& share() override { return *shares_.front(); }
  std::unique_ptr<Backend> make_backend() override { return backends_.make(0); }
  void check() override { failure_->check(); }
  void take_steps(std::vector<RankStep>& steps) override;
  std::vector<RankCounters> counters() const override;
  void watch_stamps(RankStampSink* sink) override;

 private:
  RankChannel& channel() override { return *channels_.front(); }
  void use_tracer(DeviceTracer* tracer) override { tracer_ = tracer; }
  std::vector<RankTrace> take_traces() override;
  void run(int32_t rank, const EngineOptions& options, int32_t logit_slice);

  std::shared_ptr<RankFailure> failure_ = std::make_shared<RankFailure>();
  std::vector<std::unique_ptr<ModelShard>> shares_;
  RankBackends backends_;
  std::vector<std::unique_ptr<RankChannel>> channels_;
  /// Of ranks 1 on. Not the backends', which end with a rank that fails.
  std::vector<std::unique_ptr<CounterSampler>> samplers_;
  std::vector<std::vector<OpInfo>> ops_;  ///< of ranks 1 on; each is made before its rank is ready
  std::mutex steps_mutex_;
  std::vector<RankStep> steps_;    ///< not yet taken
  std::vector<RankTrace> traces_;  ///< not yet taken
  std::atomic<DeviceTracer*> tracer_{nullptr};
  std::mutex stamps_mutex_;
  RankStampSink* stamps_sink_ = nullptr;  ///< guarded by it, also while it is told
  std::vector<std::jthread> threads_;
};

}  // namespace minfer
